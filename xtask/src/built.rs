//! What `cargo test` has built: the same programs, run again without building
//! them for another set of features.

use std::path::{Path, PathBuf};

use crate::run::{Failure, Step, root};

/// The published crates, the libraries with all features and the server as a newcomer builds it: what the first circle
/// tests. Always the same, so that nothing is compiled twice.
pub(crate) const CRATES: &str = "-p tidegate -p tidegate-redis -p tidegate-config -p tidegate-tower -p tidegate-simulate \
                                 -p tidegate-replay -p tidegate-server -p tidegate-testkit \
                                 --features tidegate-redis/internals";

/// The same with what else every change may break. They add no feature to what they depend on, so what is compiled for
/// [`CRATES`] serves them, too.
pub(crate) const REST: &str = "-p xtask -p tidegate-fuzz -p tidegate-chaos -p tidegate-paths -p tidegate-example-shop";

/// The server as it is handed out: its features take a fifth of all compiling, so only ci tests them.
pub(crate) const FULL_SERVER: &str = "-p tidegate-server --features full";

/// The same features, added to [`CRATES`]: for what is only checked.
pub(crate) const FULL: &str = "--features tidegate-server/full";

/// A test or an example, ready to run.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    kind: String,
    /// Whether it runs tests: a binary is also built as it is, for tests to call.
    is_test: bool,
    /// The name of its package.
    package: String,
    /// The folder of its package: where cargo would run it.
    folder: PathBuf,
    path: String,
    /// The options of cargo that chose its package.
    options: String,
}

/// All programs that run tests, of packages that are chosen by options of cargo.
pub(crate) fn tests(packages: &str) -> Result<Vec<Program>, Failure> {
    let mut found = all(packages, "--lib --bins --tests")?;
    found.retain(|program| program.is_test);
    if found.is_empty() { Err("there are no tests".into()) } else { Ok(found) }
}

/// The binaries of packages, built together and as `cargo build` does.
pub(crate) fn binaries(packages: &[&str]) -> Result<Vec<Program>, Failure> {
    let named: Vec<String> = packages.iter().map(|package| format!("--package {package}")).collect();
    let command = format!("build {} --features tidegate-server/full", named.join(" "));
    Step::cargo(&command).run()?;
    let printed = Step::cargo(&format!("{command} --quiet --message-format json")).read()?;
    let found = printed.lines().filter_map(|line| program(line, &command));
    Ok(found.filter(|program| program.kind == "bin").collect())
}

/// The server, as the tests of some packages have it: they are built for it, and `cargo build` would choose other features
/// of what it depends on, and compile all of that again.
pub(crate) fn server(packages: &str) -> Result<String, Failure> {
    Step::cargo(&format!("test {packages} --no-run --test all")).run()?;
    let is_server = |program: &Program| program.name == "tidegate" && program.kind == "bin" && !program.is_test;
    let found = all(packages, "--test all")?.into_iter().find(is_server);
    found.map(|program| program.path).ok_or("the tests of tidegate-server have no server".into())
}

/// The examples of a package, in the order of their names.
pub(crate) fn examples(package: &str) -> Result<Vec<Program>, Failure> {
    // `cargo test --examples` would build the tests in them, and not what they show.
    let printed = Step::cargo(&format!("build {CRATES} --examples --quiet --message-format json")).read()?;
    let mut found: Vec<Program> = printed.lines().filter_map(|line| program(line, CRATES)).collect();
    found.retain(|program| program.kind == "example" && program.package() == package);
    found.sort_by(|one, other| one.name.cmp(&other.name));
    if found.is_empty() { Err(format!("{package} has no examples")) } else { Ok(found) }
}

impl Program {
    /// The name of its package.
    pub(crate) fn package(&self) -> &str {
        &self.package
    }

    /// Its package and its name.
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.package(), if self.kind == "test" { &self.name } else { &self.kind })
    }

    /// The command of cargo that builds and runs it.
    pub(crate) fn command(&self) -> String {
        match self.kind.as_str() {
            "lib" => format!("cargo test {} --lib", self.options),
            kind => format!("cargo test {} --{kind} {}", self.options, self.name),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Runs it as cargo would.
    pub(crate) fn step(&self) -> Step {
        Step::new(&self.path, &[]).within(&self.folder)
    }
}

fn all(packages: &str, targets: &str) -> Result<Vec<Program>, Failure> {
    let printed = Step::cargo(&format!("test {packages} {targets} --no-run --quiet --message-format json")).read()?;
    Ok(printed.lines().filter_map(|line| program(line, packages)).collect())
}

/// The program that a message of cargo is about: the fields are found by
/// their names, which spares a parser of JSON.
fn program(message: &str, options: &str) -> Option<Program> {
    let path = text(message, "\"executable\":\"")?;
    let target = &message[message.find("\"target\":{")?..];
    let manifest = Path::new(text(message, "\"manifest_path\":\"")?);
    Some(Program {
        name: text(target, "\"name\":\"")?.to_owned(),
        kind: text(target, "\"kind\":[\"")?.to_owned(),
        is_test: message.contains("\"test\":true},\"features\""),
        folder: manifest.parent().unwrap_or(&root()).to_owned(),
        package: package(text(message, "\"package_id\":\"")?)?.to_owned(),
        path: path.to_owned(),
        options: options.to_owned(),
    })
}

/// The name in an id of cargo: `path+file:///folder#name@version`, or
/// `path+file:///name#version` where the folder has the name of the package.
fn package(id: &str) -> Option<&str> {
    let (folder, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => folder.rsplit('/').next(),
    }
}

fn text<'m>(message: &'m str, before: &str) -> Option<&'m str> {
    let start = message.find(before)? + before.len();
    message[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CRATES, REST, package};
    use crate::run::Step;

    #[test]
    fn the_rest_adds_no_feature_to_what_the_first_circle_has_compiled() {
        let packages = |chosen: &str| -> BTreeSet<String> {
            let tree = format!("tree {chosen} --locked --edges normal,build,dev --prefix none --format {{p}}|{{f}}");
            let printed = Step::cargo(&tree).read().expect("cargo tree");
            printed.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
        };
        let own = |line: &&String| !REST.split_whitespace().any(|word| line.starts_with(&format!("{word} v")));
        let (first, all) = (packages(CRATES), packages(&format!("{CRATES} {REST}")));
        let added: Vec<&String> = all.difference(&first).filter(own).collect();
        assert!(added.is_empty(), "ci compiles again what needs these: {added:?}");
    }

    #[test]
    fn a_package_is_known_by_its_name_or_by_its_folder() {
        assert_eq!(package("path+file:///src/verify/models#tidegate-proof@0.1.0"), Some("tidegate-proof"));
        assert_eq!(package("path+file:///src/crates/tidegate#0.1.0"), Some("tidegate"));
        assert_eq!(package("nothing of the kind"), None);
    }
}
