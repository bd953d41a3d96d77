//! Draws what each algorithm does with the same traffic: a burst across the
//! edge of a window, then twice what the limit allows.
//!
//! ```text
//! cargo run --example pictures                  # the text of the crate's page
//! cargo run --example pictures -- svg docs/     # the images of docs/algorithms.md
//! ```

mod simulation;
mod svg;
mod text;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let runs = simulation::runs()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => println!("{}", text::draw(&runs)),
        ["svg", folder] => {
            let folder = Path::new(folder).join("algorithms");
            fs::create_dir_all(&folder)?;
            for run in &runs {
                let path = folder.join(svg::file_name(run));
                fs::write(&path, svg::draw(run))?;
                println!("{}", path.display());
            }
        }
        _ => return Err("usage: pictures [svg FOLDER]".into()),
    }
    Ok(())
}
