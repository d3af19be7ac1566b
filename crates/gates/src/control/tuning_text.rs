//! The settings of the translators that apply to a mount or to one of its open files. `fuse/tune.rs` lists the lines.

use client::{Class, TuningReport};
use types::tuning::{Key, Value};

/// A line for each setting, and the error of the last change.
pub(crate) fn tuning_text(report: &TuningReport, error: Option<&str>) -> String {
    let TuningReport { volume, mount, file, effective, class, rereads } = report;
    let line = |scope: &str, key: Key, value: Value| format!("{scope} {} {}\n", key.name(), key.show(value));
    let scopes = [("volume", volume), ("mount", mount), ("file", file)];
    let set =
        scopes.iter().flat_map(|(scope, tuning)| tuning.iter().map(|(key, value)| line(scope, key, value)));
    let effective = |key: Key| line("effective", key, effective.get(key).unwrap_or(Value::Auto));
    let again = if *rereads { ", read again" } else { "" };
    let work = (*class != Class::Unknown).then(|| format!("work {}{again}\n", class.name()));
    let error = error.map(|error| format!("error {error}\n"));
    set.chain(Key::ALL.map(effective)).chain(work).chain(error).collect()
}

#[cfg(test)]
mod tests {
    use types::Tuning;

    use super::*;

    fn tuning(text: &str) -> Tuning {
        text.parse().expect("it is good")
    }

    #[test]
    fn every_scope_has_its_lines_and_what_counts_is_there_for_every_key() {
        let (volume, mount, file) =
            (tuning("read-ahead=on"), tuning("read-ahead=off"), tuning("io-cache.page=4K"));
        let effective = tuning("read-ahead=off io-cache.page=4K");
        let (class, rereads) = (Class::Random, true);
        let text = tuning_text(&TuningReport { volume, mount, file, effective, class, rereads }, Some("why"));
        let head = "volume read-ahead on\nmount read-ahead off\nfile io-cache.page 4K\neffective io-cache auto\n\
                    effective io-cache.page 4K\n";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("effective read-ahead off\n")
                && text.ends_with("\nwork random, read again\nerror why\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3 + Key::ALL.len() + 2);
    }
}
