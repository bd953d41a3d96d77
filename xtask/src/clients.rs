//! The clients that tests of the server speak with: redis-cli comes with the
//! servers, redis-py from the Python packages.

use crate::run::{Failure, Step, root};

/// Where the tests look.
const DIRECTORY: &str = "target/clients/python";

/// Makes sure that they are there.
pub(crate) fn ensure() -> Result<(), Failure> {
    let directory = root().join(DIRECTORY);
    if directory.join("redis/__init__.py").exists() {
        return Ok(());
    }
    let target = directory.to_str().ok_or("the path of the workspace is no text")?;
    let arguments = ["-m", "pip", "install", "--quiet", "--target", target, "redis==8.1.0"];
    Step::new("python3", &arguments).run()
}
