//! The broker's configuration: a file of TOML, or flags that become the same.

use crate::rules::{Pattern, Rule, Rules, Verdict};
use petasos_tenant::is_part;
use serde::Deserialize;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::Duration,
};

/// Where `petasos broker status` asks, if nothing else is said.
pub const CONTROL: &str = "/run/petasos/broker.sock";

/// All of it.
///
/// ```
/// let config = petasos_broker::Config::parse(
///     r#"
///     control = "/run/petasos/broker.sock"
///
///     [[tenant]]
///     name = "alice"
///     socket = "/run/petasos/alice/tenant.sock"
///     users = [1000]
///     limits = { bytes_per_second = 1_000_000_000, connections = 64 }
///
///     [[tenant]]
///     name = "bob"
///     socket = "/run/petasos/bob/tenant.sock"
///
///     [[rule]]
///     verdict = "allow"
///     from = "bob"
///     to = "files@alice"
///     "#,
/// )?;
/// assert_eq!(config.tenants.len(), 2);
/// # Ok::<(), petasos_broker::ConfigError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The socket for `petasos broker status`. Processes of the broker's user may use it.
    #[serde(default = "control")]
    pub control: PathBuf,
    /// How long the broker looks for work before it sleeps, in microseconds. Default: 0; it uses no
    /// processor while there is nothing to do, whatever this says.
    #[serde(default)]
    pub spin_us: u64,
    /// The tenants.
    #[serde(default, rename = "tenant")]
    pub tenants: Vec<Tenant>,
    /// Which tenants may talk to each other. The first that is for a connection decides.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

fn control() -> PathBuf {
    CONTROL.into()
}

/// A tenant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tenant {
    /// What it is called: `TENANT` in `tenant://NAME@TENANT`.
    pub name: String,
    /// The socket by which its programs come: to be given into its containers, and to no others.
    pub socket: PathBuf,
    /// Users whose processes may come by it, as the broker sees their numbers. Default: every user
    /// that can reach the socket.
    #[serde(default)]
    pub users: Option<Vec<u32>>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
}

/// What one tenant may use. At each limit the tenant waits, or is refused; others go on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes that it sends in a second. Default: no limit.
    pub bytes_per_second: Option<u64>,
    /// Messages that it sends in a second. Default: no limit.
    pub messages_per_second: Option<u64>,
    /// Endpoints at a time. Default: 64.
    pub endpoints: u32,
    /// Connections at a time that it has made; one between two endpoints takes one of each, as each
    /// goes one way. As many may be made to it. Default: 1024.
    pub connections: u32,
    /// Bytes that were sent and not consumed by their receivers: memory of the broker, and of these.
    /// Default: 64 MiB.
    pub outstanding_bytes: u64,
    /// Bytes of memory that its endpoints may register with the broker: each when it is opened gets a
    /// quarter of what is left. Pages that the broker is the first to touch, be it to read them, count
    /// as the broker's for the system's limits, for as long as the tenant keeps their file.
    /// Default: 4 GiB.
    pub registered_bytes: u64,
    /// Files of such memory, in the same way; each is a mapping of the broker's, of which the system
    /// lets a process have 65530, if nothing else was said (`vm.max_map_count`). Default: 4096.
    pub registered_files: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes_per_second: None,
            messages_per_second: None,
            endpoints: 64,
            connections: 1024,
            outstanding_bytes: 64 << 20,
            registered_bytes: 4 << 30,
            registered_files: 4096,
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is not understood.
    #[error("{0}")]
    Parse(String),
    /// It says what cannot be.
    #[error("{0}")]
    Wrong(String),
}

impl Config {
    /// One without tenants.
    #[must_use]
    pub fn new(control: impl Into<PathBuf>) -> Config {
        Config { control: control.into(), spin_us: 0, tenants: Vec::new(), rules: Vec::new() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let named = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Config::parse(&text).map_err(|error| match error {
            ConfigError::Parse(what) => ConfigError::Parse(named(&what)),
            other => ConfigError::Wrong(named(&other)),
        })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text)
            .map_err(|error| ConfigError::Parse(error.to_string().trim_end().to_owned()))?;
        config.check()?;
        Ok(config)
    }

    /// Adds a tenant, for configurations that are made of flags.
    pub fn add_tenant(&mut self, name: impl Into<String>, socket: impl Into<PathBuf>) {
        let (name, socket) = (name.into(), socket.into());
        self.tenants.push(Tenant { name, socket, users: None, limits: Limits::default() });
    }

    /// Allows connections, for configurations that are made of flags.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for what names no endpoints.
    pub fn allow(&mut self, from: &str, to: &str) -> Result<(), ConfigError> {
        let pattern = |text: &str| Pattern::try_from(text.to_owned()).map_err(ConfigError::Wrong);
        let (from, to) = (pattern(from)?, pattern(to)?);
        self.rules.push(Rule { verdict: Verdict::Allow, from, to });
        Ok(())
    }

    /// Sets a limit of a tenant, for configurations that are made of flags.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] if there is no such tenant, or no such limit.
    pub fn set_limit(&mut self, tenant: &str, limit: &str, value: u64) -> Result<(), ConfigError> {
        let wrong = |what: &str| ConfigError::Wrong(what.to_owned());
        let known = self.tenants.iter_mut().find(|known| known.name == tenant);
        let limits =
            &mut known.ok_or_else(|| wrong(&format!("no tenant is called {tenant}")))?.limits;
        let small =
            || u32::try_from(value).map_err(|_| wrong(&format!("{limit}: {value} is too much")));
        match limit {
            "bytes_per_second" => limits.bytes_per_second = Some(value),
            "messages_per_second" => limits.messages_per_second = Some(value),
            "endpoints" => limits.endpoints = small()?,
            "connections" => limits.connections = small()?,
            "outstanding_bytes" => limits.outstanding_bytes = value,
            "registered_bytes" => limits.registered_bytes = value,
            "registered_files" => limits.registered_files = small()?,
            other => return Err(wrong(&format!("there is no limit `{other}`"))),
        }
        Ok(())
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules(self.rules.clone())
    }

    /// How long the broker looks for work before it sleeps.
    #[must_use]
    pub fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what: String| Err(ConfigError::Wrong(what));
        let (mut names, mut sockets) = (HashSet::new(), HashSet::new());
        sockets.insert(self.control.as_path());
        for Tenant { name, socket, .. } in &self.tenants {
            if !is_part(name) {
                return wrong(format!("`{}` is no name for a tenant", name.escape_debug()));
            }
            if !names.insert(name.as_str()) {
                return wrong(format!("there are two tenants `{name}`"));
            }
            if !sockets.insert(socket) {
                return wrong(format!("{} is the socket of two", socket.display()));
            }
        }
        for rule in &self.rules {
            for tenant in [rule.from.tenant(), rule.to.tenant()].into_iter().flatten() {
                if !names.contains(tenant) {
                    return wrong(format!("the rule `{rule}` names no tenant: {tenant}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let tenant = "[[tenant]]\nname = \"a\"\nsocket = \"/a\"\n";
        for (text, says) in [
            ("colour = 1", "colour"),
            ("[[tenant]]\nname = \"a b\"\nsocket = \"/a\"", "no name"),
            (&format!("{tenant}{tenant}"), "two tenants"),
            ("control = \"/a\"\n[[tenant]]\nname = \"a\"\nsocket = \"/a\"", "socket of two"),
            (&format!("{tenant}limits = {{ wishes = 3 }}"), "wishes"),
            ("[[rule]]\nverdict = \"allow\"\nfrom = \"x\"\nto = \"*\"", "names no tenant"),
            ("[[rule]]\nverdict = \"perhaps\"\nfrom = \"*\"\nto = \"*\"", "perhaps"),
            ("[[rule]]\nverdict = \"deny\"\nfrom = \"a@b@c\"\nto = \"*\"", "write TENANT"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let config = Config::parse(&format!("{tenant}limits = {{ connections = 3 }}")).unwrap();
        assert_eq!(config.tenants[0].limits.connections, 3);
        assert_eq!(config.tenants[0].limits.endpoints, Limits::default().endpoints);
        assert_eq!(config.control, Path::new(CONTROL));
    }
}
