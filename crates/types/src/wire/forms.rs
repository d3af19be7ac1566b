//! The tables of `docs/formats.md`, made of the declarations of records.

use std::collections::BTreeMap;

/// Collects the tables of the records that were described, and of all that they contain.
#[derive(Debug, Default)]
pub struct Forms {
    tables: BTreeMap<String, String>,
}

impl Forms {
    /// Adds the table of a record. `docs` are its attributes; each field has a name, a form, a default if it was added later, and its
    /// attributes. Returns its name.
    pub fn record(
        &mut self,
        name: &str,
        grows: bool,
        docs: &[&str],
        fields: impl FnOnce(&mut Forms) -> Vec<(&'static str, String, &'static str, String)>,
    ) -> String {
        if !self.tables.contains_key(name) {
            // A record does not contain itself, but its own table comes before those of its parts.
            self.tables.insert(name.to_owned(), String::new());
            let rows: String = fields(self)
                .into_iter()
                .map(|(field, form, default, docs)| {
                    let missing = if default.is_empty() { String::new() } else { format!("; if missing, `{default}`") };
                    format!("| `{field}` | {form}{missing} | {} |\n", sentences(&[&docs]))
                })
                .collect();
            let kind = if grows { "" } else { " It never grows." };
            let table = format!("{}{kind}\n\n| field | form | what it is |\n|---|---|---|\n{rows}", sentences(docs));
            self.tables.insert(name.to_owned(), table);
        }
        name.to_owned()
    }

    /// Adds the table of an enum. Returns its name.
    pub fn codes(&mut self, name: &str, int: &str, codes: &[(&str, &str)]) -> String {
        let rows: String = codes.iter().map(|(variant, code)| format!("| {code} | {variant} |\n")).collect();
        let table = format!("One of these numbers, as {int}.\n\n| number | meaning |\n|---|---|\n{rows}");
        self.tables.entry(name.to_owned()).or_insert(table);
        format!("{name} ({int})")
    }

    /// All tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), table.as_str()))
    }

    /// Takes the table of a record out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.tables.remove(name)
    }

    /// All tables as chapters of a document.
    pub fn chapters(&self) -> String {
        self.tables().map(|(name, table)| format!("### {name}\n\n{table}\n")).collect()
    }
}

/// Finds a generated section of a document, between `<!-- NAME -->` and `<!-- end of NAME -->`. Returns its text, and the document with
/// another text in its place.
pub fn section<'a>(document: &'a str, name: &str, text: &str) -> Option<(&'a str, String)> {
    let (before, rest) = document.split_once(&format!("<!-- {name} -->\n"))?;
    let (found, after) = rest.split_once(&format!("<!-- end of {name} -->"))?;
    Some((found, format!("{before}<!-- {name} -->\n{text}<!-- end of {name} -->{after}")))
}

/// The text of documentation attributes, as `stringify!` shows them: `doc = r" One line."`.
fn sentences(docs: &[&str]) -> String {
    let mut words = Vec::new();
    for doc in docs {
        let mut rest = *doc;
        while let Some(at) = rest.find("doc =") {
            rest = &rest[at + "doc =".len()..];
            let (Some(begin), next) = (rest.find('"'), rest.find("doc =").unwrap_or(rest.len())) else { break };
            let Some(end) = rest[..next].rfind('"').filter(|end| *end > begin) else { break };
            words.push(rest[begin + 1..end].replace("\\\"", "\"").trim().to_owned());
            rest = &rest[next..];
        }
    }
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_sentences() {
        assert_eq!(sentences(&[r#"doc = r" One.""#, r#"doc = " Two: `a|b`.""#, "derive(Default)"]), "One. Two: `a\\|b`.");
        assert_eq!(sentences(&[r#"doc = r" One."doc = r" Two.""#]), "One. Two.");
    }
}
