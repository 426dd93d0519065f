//! Emulated hosts on one machine: network namespaces joined by a switch that can go dark.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Network namespaces, `a` at 10.77.0.1, `b` at 10.77.0.2 and so on, joined by a switch in one
/// more. All are removed when this is dropped.
#[derive(Debug)]
pub struct Hosts {
    id: String,
    count: u8,
}

impl Hosts {
    /// Makes two; `None`, with a message, where this process may not or has no `ip` command.
    #[must_use]
    pub fn make() -> Option<Hosts> {
        Hosts::several(2)
    }

    /// Makes so many, at most 26; `None` as in [`Hosts::make`].
    #[must_use]
    pub fn several(count: u8) -> Option<Hosts> {
        if !crate::is_root() {
            crate::skip("only root can make network namespaces");
            return None;
        }
        if ip(&["-V"]).is_err() {
            crate::skip("the ip command (package iproute2) is not here");
            return None;
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts { id: format!("{}-{nth}", std::process::id()), count: count.min(26) };
        match hosts.wire() {
            Ok(()) => Some(hosts),
            Err(why) => {
                crate::skip(&format!("network namespaces cannot be made here: {why}"));
                None
            }
        }
    }

    fn wire(&self) -> Result<(), String> {
        let switch = self.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        for (at, host) in self.letters().enumerate() {
            let (ns, port) = (self.name(host), format!("port-{host}"));
            let address = format!("10.77.0.{}/24", at + 1);
            ip(&["netns", "add", &ns])?;
            let ends = ["eth0", "netns", &ns, "type", "veth", "peer", "name", &port];
            ip(&[&["link", "add"], &ends[..], &["netns", &switch]].concat())?;
            ip(&["-n", &switch, "link", "set", &port, "master", "switch", "up"])?;
            ip(&["-n", &ns, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &ns, "link", "set", "eth0", "up"])?;
            ip(&["-n", &ns, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn letters(&self) -> impl Iterator<Item = char> + use<> {
        ('a'..='z').take(usize::from(self.count))
    }

    /// The namespace of a host by its letter, for [`in_host`].
    #[must_use]
    pub fn name(&self, host: char) -> String {
        format!("petasos-{}-{host}", self.id)
    }

    fn switch(&self) -> String {
        format!("petasos-{}-switch", self.id)
    }

    /// Cuts all off from each other: packets vanish without an error.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn cut(&self) {
        ip(&["-n", &self.switch(), "link", "set", "switch", "down"]).expect("a switch goes down");
    }

    /// Cuts one off from all others: packets vanish without an error.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn cut_off(&self, host: char) {
        let port = format!("port-{host}");
        ip(&["-n", &self.switch(), "link", "set", &port, "nomaster"]).expect("a port is unplugged");
    }

    /// Joins them again.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn heal(&self) {
        ip(&["-n", &self.switch(), "link", "set", "switch", "up"]).expect("a switch comes up");
    }
}

/// The command `ip netns exec NAMESPACE PROGRAM`, to be completed.
#[must_use]
pub fn in_host(namespace: &str, program: &std::path::Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in self.letters() {
            let _ = ip(&["netns", "del", &self.name(host)]);
        }
        let _ = ip(&["netns", "del", &self.switch()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    #[test]
    fn hosts_reach_each_other_until_the_link_is_cut() {
        if let Some(role) = crate::role() {
            return host(&role);
        }
        let Some(hosts) = Hosts::make() else { return };
        let name = "hosts::tests::hosts_reach_each_other_until_the_link_is_cut";
        let mut server = crate::again(name, "server").in_host(&hosts.name('a')).start();
        server.line("listening");
        let mut client = crate::again(name, "client").in_host(&hosts.name('b')).start();
        assert_eq!(client.line("got "), "0");
        hosts.cut();
        server.tell("");
        assert_eq!(client.line("got "), "nothing");
    }

    fn host(role: &str) {
        let mut line = String::new();
        if role == "server" {
            let listener = TcpListener::bind("10.77.0.1:7777").unwrap();
            println!("\nlistening");
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, &[0]).unwrap();
            std::io::stdin().read_line(&mut line).unwrap();
            std::io::Write::write_all(&mut stream, &[1]).unwrap();
            std::io::stdin().read_line(&mut line).unwrap();
        } else {
            let mut stream = TcpStream::connect("10.77.0.1:7777").unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            println!("\ngot {}", byte[0]);
            stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
            let silent = stream.read_exact(&mut byte).is_err();
            println!("\ngot {}", if silent { "nothing" } else { "something" });
        }
    }
}
