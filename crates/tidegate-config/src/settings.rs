//! Flat files of settings: names and values, for programs that have flags.
//!
//! What the names are and which values they take, the program says; where a
//! error stands, this module does.

use std::path::Path;

use crate::load::{Format, tree_of};
use crate::reader::{Disk, read_text};
use crate::report::{Collector, Diagnostic, Problem, Report};
use crate::source::Span;
use crate::suggest;
use crate::tree::{Entry, Node, Value};

/// A name of a file, and what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The value as text, or several.
    pub values: Vec<String>,
}

/// The settings of a file, TOML or YAML. `accept` says of each what is wrong
/// with its values, if anything is.
///
/// # Errors
/// A report of all that is wrong: names that are not among `names`, values
/// that are not accepted.
pub fn load(
    path: &Path,
    names: &[&str],
    mut accept: impl FnMut(&Setting) -> Result<(), String>,
) -> Result<Vec<Setting>, Report> {
    let Some(format) = Format::of(path) else {
        return Err(Problem::UnknownFormat { path: path.display().to_string() }.into());
    };
    let mut diagnostics = Collector::default();
    let text = match read_text(&mut Disk, path, None) {
        Ok(text) => text,
        Err(diagnostic) => return Err((*diagnostic).into()),
    };
    let Some((source, tree)) = tree_of(path, text, format, &mut diagnostics) else { return diagnostics.finish(None) };
    let mut settings = Vec::new();
    match &tree.value {
        // An empty file of YAML.
        Value::Nothing => {}
        Value::Table(entries) => {
            for entry in entries {
                if diagnostics.is_full() {
                    break;
                }
                match read(entry, names, &mut accept) {
                    Ok(setting) => settings.push(setting),
                    Err((span, problem)) => {
                        let diagnostic = Diagnostic::at(&source, span, problem);
                        diagnostics.add(|| match suggest::nearest(&entry.key, names.iter().copied()) {
                            Some(meant) if meant != entry.key => {
                                diagnostic.help_with(format!("did you mean {meant:?}?"))
                            }
                            Some(_) | None => diagnostic,
                        });
                    }
                }
            }
        }
        _ => {
            let problem = Problem::Unexpected { expected: "names and values".into(), found: describe(&tree) };
            diagnostics.add(|| Diagnostic::at(&source, &tree.span, problem));
        }
    }
    diagnostics.finish(Some(settings))
}

/// What an entry sets, or which part of it is wrong.
fn read<'e>(
    entry: &'e Entry,
    names: &[&str],
    accept: &mut impl FnMut(&Setting) -> Result<(), String>,
) -> Result<Setting, (&'e Span, Problem)> {
    if !names.contains(&entry.key.as_str()) {
        return Err((&entry.key_span, Problem::Invalid { message: format!("there is no setting {:?}", entry.key) }));
    }
    let wrong = |problem| (&entry.value.span, problem);
    let setting = Setting { name: entry.key.clone(), values: values(&entry.value).map_err(wrong)? };
    match accept(&setting) {
        Ok(()) => Ok(setting),
        Err(message) => Err(wrong(Problem::Invalid { message })),
    }
}

/// A value as texts: one, or those of a list.
fn values(node: &Node) -> Result<Vec<String>, Problem> {
    match &node.value {
        Value::List(items) => items.iter().map(single).collect(),
        _ => Ok(vec![single(node)?]),
    }
}

fn single(node: &Node) -> Result<String, Problem> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Integer(number, _) => Ok(number.to_string()),
        Value::Nothing | Value::Fraction(_) | Value::List(_) | Value::Table(_) => {
            let expected = "text, a whole number, true, false, or a list of them".into();
            Err(Problem::Unexpected { expected, found: describe(node) })
        }
    }
}

fn describe(node: &Node) -> String {
    match &node.value {
        Value::Nothing => "nothing".into(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bool(value) => value.to_string(),
        Value::Integer(_, written) | Value::Fraction(written) => written.clone(),
        Value::List(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
    }
}
