//! Which version of a library must be tested.

/// Fails the test if an environment variable, as `PETASOS_UCX_AT_LEAST=1.20`, asks for a later
/// version than what was found, as `UCX 1.13 (libucp.so.0)`: then another library was loaded than
/// the one to be tested.
///
/// # Panics
/// If it is older, or one of both is no version.
pub fn assert_at_least(variable: &str, found: &str) {
    if let Ok(wanted) = std::env::var(variable) {
        assert!(at_least(&wanted, found), "{variable}={wanted}, and what was loaded is {found}");
    }
}

fn at_least(wanted: &str, found: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u32>> {
        text.split('.').map(|number| number.parse().ok()).collect()
    };
    let found = found.split_whitespace().nth(1).and_then(numbers);
    numbers(wanted).is_some_and(|wanted| found.is_some_and(|found| found >= wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_number() {
        for (wanted, found) in [("1.20", "UCX 1.20 (x)"), ("1.9", "UCX 1.20"), ("2", "l 2.5 (x)")] {
            assert!(at_least(wanted, found), "{wanted} {found}");
        }
        for (wanted, found) in [("1.20", "UCX 1.13 (x)"), ("2", "l 1.17"), ("2", "l"), ("", "l 2")]
        {
            assert!(!at_least(wanted, found), "{wanted} {found}");
        }
    }
}
