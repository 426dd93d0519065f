//! Which endpoints may talk to each other.

use petasos_tenant::{Name, is_part};
use serde::Deserialize;
use std::fmt;

/// What a rule says of connections that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// They may be made.
    Allow,
    /// They may not.
    Deny,
}

/// Endpoints: `alice` for all of a tenant, `files@alice` for one, `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    endpoint: Option<String>,
    tenant: Option<String>,
}

impl Pattern {
    /// Whether it means this endpoint.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        self.endpoint.as_deref().is_none_or(|is| is == name.endpoint())
            && self.tenant.as_deref().is_none_or(|is| is == name.tenant())
    }

    /// The tenant that it names, if it names one.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;
    fn try_from(text: String) -> Result<Pattern, String> {
        let part = |text: &str| match text {
            "*" => Ok(None),
            text if is_part(text) => Ok(Some(text.to_owned())),
            _ => Err(format!("`{}`: write TENANT, NAME@TENANT or *", text.escape_debug())),
        };
        match text.split_once('@') {
            None => Ok(Pattern { endpoint: None, tenant: part(&text)? }),
            Some((endpoint, tenant)) => {
                Ok(Pattern { endpoint: part(endpoint)?, tenant: part(tenant)? })
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(endpoint) = &self.endpoint {
            write!(f, "{endpoint}@")?;
        }
        f.write_str(self.tenant.as_deref().unwrap_or("*"))
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which way.
    pub verdict: Verdict,
    /// The endpoint that makes the connection.
    pub from: Pattern,
    /// To whom.
    pub to: Pattern,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {} to {}", self.from, self.to)
    }
}

/// Rules, of which the first that is for a connection decides. What none is for may be within a
/// tenant, and is denied between tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Whether a connection may be made, and what says so.
    #[must_use]
    pub fn decide(&self, from: &Name, to: &Name) -> (Verdict, String) {
        let is_for = |rule: &&Rule| rule.from.matches(from) && rule.to.matches(to);
        match self.0.iter().find(is_for) {
            Some(rule) => (rule.verdict, rule.to_string()),
            None if from.tenant() == to.tenant() => (Verdict::Allow, "one tenant".to_owned()),
            None => (Verdict::Deny, "no rule allows it".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verdict: Verdict, from: &str, to: &str) -> Rule {
        let pattern = |text: &str| Pattern::try_from(text.to_owned()).unwrap();
        Rule { verdict, from: pattern(from), to: pattern(to) }
    }

    #[test]
    fn the_first_rule_decides() {
        let rules = Rules(vec![
            rule(Verdict::Deny, "mallory", "*"),
            rule(Verdict::Allow, "*", "files@alice"),
            rule(Verdict::Allow, "bob", "carol"),
            rule(Verdict::Deny, "dave", "dave"),
        ]);
        let decide = |from: &str, to: &str| {
            rules.decide(&from.parse().unwrap(), &to.parse().unwrap()).0 == Verdict::Allow
        };
        assert!(decide("x@bob", "files@alice") && !decide("x@bob", "other@alice"));
        assert!(decide("x@bob", "any@carol") && !decide("any@carol", "x@bob"));
        assert!(!decide("x@mallory", "files@alice") && !decide("x@mallory", "y@mallory"));
        assert!(decide("x@eve", "y@eve") && !decide("x@dave", "y@dave"));
        assert_eq!(rules.0[1].to_string(), "allow * to files@alice");
        assert!(Pattern::try_from("a b".to_owned()).is_err());
    }
}
