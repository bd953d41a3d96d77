//! Writes the scripts into a folder, to be read, linted or loaded beforehand:
//! `cargo run --example scripts -- FOLDER`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        println!("usage: scripts FOLDER");
        return Ok(());
    };
    std::fs::create_dir_all(&folder)?;
    for (name, text) in tidegate_redis::scripts() {
        let file = Path::new(&folder).join(name).with_extension("lua");
        std::fs::write(&file, text)?;
        println!("{}", file.display());
    }
    Ok(())
}
