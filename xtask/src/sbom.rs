//! What the server's binary is made of, as CycloneDX 1.5.
//!
//! The packages and who needs whom are those of `cargo tree`, with the features
//! that a release is built with; the checksums are those of `Cargo.lock`. The
//! same sources give the same bytes: there is no time and no serial number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::run::{Failure, Step, root};

const SERVER: &str = "tidegate-server";

/// A name and a version.
type Package = (String, String);

#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    license: String,
    needs: BTreeSet<Package>,
}

/// Writes `target/sbom.json`.
pub(crate) fn write() -> Result<(), Failure> {
    let tree =
        ["tree", "--locked", "--package", SERVER, "--features", "full", "--edges", "normal", "--prefix", "depth"];
    let printed = Step::new("cargo", &[&tree[..], &["--format", " {p}|{l}"]].concat()).read()?;
    let lock = fs::read_to_string(root().join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = packages(&printed)?;
    let path = root().join("target/sbom.json");
    let written = fs::create_dir_all(root().join("target"))
        .and_then(|()| fs::write(&path, document(&packages, &checksums(&lock))?));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{} packages: {}", packages.len(), path.display());
    Ok(())
}

/// The packages of a tree whose lines are `depth name vVERSION ..|LICENSE`.
fn packages(printed: &str) -> Result<BTreeMap<Package, Facts>, Failure> {
    let mut packages = BTreeMap::<Package, Facts>::new();
    // Each needed by the one before.
    let mut above: Vec<Package> = Vec::new();
    for line in printed.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("cargo tree printed {line:?}, which is not understood");
        let (package, license) = line.split_once('|').ok_or_else(wrong)?;
        let mut words = package.split_whitespace();
        let (Some(depth), Some(name), Some(version)) = (words.next(), words.next(), words.next()) else {
            return Err(wrong());
        };
        let depth: usize = depth.parse().map_err(|_| wrong())?;
        let package = (name.to_owned(), version.trim_start_matches('v').to_owned());
        above.truncate(depth);
        if let Some(user) = above.last() {
            packages.entry(user.clone()).or_default().needs.insert(package.clone());
        }
        let license = license.trim_end_matches(" (*)").split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        packages.entry(package.clone()).or_default().license = license;
        above.push(package);
    }
    Ok(packages)
}

/// The SHA-256 of each package that comes from a registry.
fn checksums(lock: &str) -> BTreeMap<Package, String> {
    let entries = lock.split("[[package]]").filter_map(|entry| {
        let value = |name: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    entries.collect()
}

fn document(packages: &BTreeMap<Package, Facts>, checksums: &BTreeMap<Package, String>) -> std::io::Result<String> {
    let is_server = |(name, _): &Package| name == SERVER;
    let component = |kind: &str, package: &Package, facts: &Facts| {
        let (name, version) = package;
        let mut fields = vec![
            format!(r#""type": "{kind}""#),
            format!(r#""bom-ref": {:?}"#, purl(package)),
            format!(r#""name": {name:?}"#),
            format!(r#""version": {version:?}"#),
            format!(r#""purl": {:?}"#, purl(package)),
        ];
        if !facts.license.is_empty() {
            fields.push(format!(r#""licenses": [{{"expression": {:?}}}]"#, facts.license));
        }
        if let Some(hash) = checksums.get(package) {
            fields.push(format!(r#""hashes": [{{"alg": "SHA-256", "content": {hash:?}}}]"#));
        }
        format!("{{{}}}", fields.join(", "))
    };
    let server = packages.iter().find(|(package, _)| is_server(package));
    let (server, facts) = server.ok_or_else(|| std::io::Error::other("the server is not in its tree"))?;
    let components: Vec<String> = packages
        .iter()
        .filter(|(package, _)| !is_server(package))
        .map(|(package, facts)| component("library", package, facts))
        .collect();
    let dependencies = packages.iter().map(|(package, facts)| {
        let needs: Vec<String> = facts.needs.iter().map(|needed| format!("{:?}", purl(needed))).collect();
        format!(r#"{{"ref": {:?}, "dependsOn": [{}]}}"#, purl(package), needs.join(", "))
    });
    Ok(format!(
        r#"{{
 "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
 "bomFormat": "CycloneDX",
 "specVersion": "1.5",
 "version": 1,
 "metadata": {{"component": {}}},
 "components": [
  {}
 ],
 "dependencies": [
  {}
 ]
}}
"#,
        component("application", server, facts),
        components.join(",\n  "),
        dependencies.collect::<Vec<_>>().join(",\n  ")
    ))
}

/// The package URL, in which a plus sign is written by its number.
fn purl((name, version): &Package) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_becomes_components_and_who_needs_whom() {
        let printed = "0 tidegate-server v0.1.0 (/x)|MIT OR Apache-2.0\n1 b v2.0.0+x (proc-macro)|MIT/Apache-2.0\n\
                       2 c v1.0.0|\n1 c v1.0.0| (*)\n";
        let lock = "[[package]]\nname = \"c\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\ndependencies = [\n \"x\",\n]\n";
        let packages = packages(printed).expect("a tree");
        let package = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let facts = |license: &str, needs: &[Package]| Facts {
            license: license.to_owned(),
            needs: needs.iter().cloned().collect(),
        };
        let (b, c) = (package("b", "2.0.0+x"), package("c", "1.0.0"));
        assert_eq!(packages[&package(SERVER, "0.1.0")], facts("MIT OR Apache-2.0", &[b.clone(), c.clone()]));
        assert_eq!(packages[&b], facts("MIT OR Apache-2.0", std::slice::from_ref(&c)));
        assert_eq!(packages[&c], facts("", &[]));
        let document = document(&packages, &checksums(lock)).expect("a document");
        for line in [
            r#""metadata": {"component": {"type": "application", "bom-ref": "pkg:cargo/tidegate-server@0.1.0","#,
            r#"{"type": "library", "bom-ref": "pkg:cargo/c@1.0.0", "name": "c", "version": "1.0.0", "purl": "pkg:cargo/c@1.0.0", "hashes": [{"alg": "SHA-256", "content": "ab"}]}"#,
            r#"{"ref": "pkg:cargo/b@2.0.0%2Bx", "dependsOn": ["pkg:cargo/c@1.0.0"]}"#,
        ] {
            assert!(document.contains(line), "{line} in {document}");
        }
    }
}
