//! Draws the pictures of the chapter about algorithms, each algorithm on the same
//! traffic, and prints the text of the library's page.
//!
//! ```text
//! cargo run -p tidegate-simulate --example pictures                           # only says what there is
//! cargo run -p tidegate-simulate --example pictures -- docs/book/src/concepts # writes it
//! ```

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use tidegate::Limit;
use tidegate_simulate::{Picture, Scenario};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1);
    let lesson = Scenario::lesson(Limit::per_second(10))?;
    let whole = lesson.clone().run()?;
    println!("{}\n{}", whole.table(), whole.chart());
    let each =
        whole.outcomes.iter().map(|outcome| (outcome.name().replace(' ', "-"), lesson.clone().limits([outcome.limit])));
    for (name, scenario) in each.chain([("side-by-side".to_owned(), lesson.clone())]) {
        draw(folder.as_deref(), &name, scenario)?;
    }
    Ok(())
}

fn draw(folder: Option<&str>, name: &str, scenario: Scenario) -> Result<(), Box<dyn Error>> {
    let picture = scenario.run()?.picture();
    match folder {
        Some(folder) => {
            let path = Path::new(folder).join("algorithms").join(format!("{name}.svg"));
            fs::write(&path, picture.to_svg())?;
            println!("{}", path.display());
        }
        None => println!("{name}: {} by {}", Picture::WIDTH, picture.height()),
    }
    Ok(())
}
