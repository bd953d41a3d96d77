//! Files that include others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate::{Limiter, Request};
use tidegate_config::{Problem, Report, load};

/// A folder with files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        for (file, text) in files {
            let file = folder.0.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder can be made");
            fs::write(file, text).expect("and a file in it");
        }
        folder
    }

    /// What is wrong, without the folder's own name.
    fn diagnostics(&self, file: &str) -> Report {
        load(self.0.join(file)).map(drop).expect_err("an error")
    }

    fn shown(&self, report: &Report) -> String {
        report.to_string().replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn rules_overrides_and_lists_come_together() {
    let folder = Folder::new(&[
        (
            "policy.toml",
            "include = ['parts/tenants.yaml', 'parts/more.toml']\n[rules.orders]\nlimit = '1/h'\nkey = ['tenant']\n",
        ),
        ("parts/tenants.yaml", "overrides: { orders: { tenant: { acme: 5/h, 'big-*': 7/h } } }\ninclude: [lists.yml]"),
        ("parts/lists.yml", "lists: { deny: [{ tenant: foe }] }"),
        ("parts/more.toml", "[rules.more]\nlimit = '100/h'\nmatch = { more = { present = true } }\n"),
    ]);
    let policy = load(folder.0.join("policy.toml")).unwrap_or_else(|report| panic!("{report}"));
    let limiter = Limiter::new(policy);
    let limit = |tenant| limiter.check(Request::new(()).with("tenant", tenant)).expect("an answer").capacity();
    assert_eq!([limit("acme"), limit("big-one"), limit("other")], [5, 7, 1].map(Some));
    assert!(limiter.check(Request::new(()).with("tenant", "foe")).expect("an answer").is_blocked());
    let explained = limiter.explain(Request::new(())).expect("an answer");
    assert_eq!(explained.rules.iter().map(|rule| rule.rule.as_str()).collect::<Vec<_>>(), ["orders", "more"]);
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let folder = Folder::new(&[
        ("a.toml", "include = ['b.yaml']\n[default]\nlimit = '1/s'\n"),
        ("b.yaml", "include: [./c.toml]"),
        ("x.toml", ""),
        ("c.toml", "include = ['x.toml', './a.toml']\n"),
    ]);
    let report = folder.diagnostics("a.toml");
    assert!(
        report.diagnostics().iter().any(|diagnostic| matches!(diagnostic.problem(), Problem::Cycle { .. })),
        "{report}"
    );
    let shown = folder.shown(&report);
    assert!(shown.contains(" --> ./c.toml:1:22"), "{shown}");
}

#[test]
fn errors_of_all_files_are_told_each_in_its_own() {
    let folder = Folder::new(&[
        ("policy.toml", "include = ['a.yaml', 'gone.toml', 'a.json5']\n[rules.one]\nlimt = '1/s'\n"),
        ("a.yaml", "rules:\n  one: { limit: 1/min }\n  two: { limit: 2/fortnight }\n"),
    ]);
    let shown = folder.shown(&folder.diagnostics("policy.toml"));
    for part in
        ["policy.toml:3:1", "a.yaml:3:17", "policy.toml:1:22", "gone.toml", "policy.toml:1:35", ".toml, .yaml or .yml"]
    {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
}

#[test]
fn a_rule_of_two_files_is_shown_in_both() {
    let folder = Folder::new(&[
        ("policy.toml", "include = ['a.yaml']\n[rules.one]\nlimit = '1/s'\n[default]\nlimit = '1/s'\n"),
        ("a.yaml", "rules:\n  one: { limit: 1/min }\ndefault: { limit: 1/min }\n"),
    ]);
    let report = folder.diagnostics("policy.toml");
    let shown = folder.shown(&report);
    assert_eq!(report.diagnostics().len(), 2, "{shown}");
    for part in ["a.yaml:2:3", "policy.toml:2:8", "a.yaml:3:1", "policy.toml:4:2", "first here", "again here"] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
}

#[test]
fn includes_have_a_depth() {
    let files: Vec<(String, String)> = (0..20)
        .map(|depth| {
            let text = format!("include = ['{}.toml']\n[rules.r{depth}]\nlimit = '1/s'\n", depth + 1);
            (format!("{depth}.toml"), text)
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
    let folder = Folder::new(&files);
    let report = folder.diagnostics("0.toml");
    let shown = folder.shown(&report);
    assert!(shown.contains("includes are nested too deep: the most is 8") && shown.contains("8.toml:1:12"), "{shown}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let report = load(Path::new("/nowhere/policy.toml")).map(drop).expect_err("no file");
    assert!(report.to_string().starts_with("error: cannot read \"/nowhere/policy.toml\": "), "{report}");
    assert!(report.diagnostics()[0].place().is_none());
}
