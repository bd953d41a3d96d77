//! Every link of the built book leads somewhere, its anchor included.
//!
//! Chapters also link to files of the repository. Those are copied into the
//! book, and the links changed to lead there, so that the book is whole
//! wherever it is put.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{Chapter, read};
use crate::run::{Failure, root};

/// Below the book: the files of the repository that chapters link to.
const FILES: &str = "repository";

/// Documents beside the book, which link into it.
const BESIDE: [&str; 5] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "PROMISES.md", "SECURITY.md"];

/// The pages, by the files that they are made of.
struct Pages<'c> {
    of_files: HashMap<&'c Path, &'c Path>,
    anchors: HashMap<&'c Path, BTreeSet<String>>,
    book: &'c Path,
}

pub(super) fn check(chapters: &[Chapter], book: &Path) -> Result<(), Failure> {
    let mut pages = Pages { of_files: HashMap::new(), anchors: HashMap::new(), book };
    let mut texts = Vec::new();
    for chapter in chapters {
        let page = book.join(&chapter.page);
        let text = fs::read_to_string(&page).map_err(|error| format!("cannot read {}: {error}", page.display()))?;
        pages.of_files.extend([(&*chapter.origin, &*chapter.page), (&*chapter.source, &*chapter.page)]);
        pages.anchors.insert(&chapter.page, values(&text, "id").map(|(_, id)| id.to_owned()).collect());
        texts.push(text);
    }
    let mut broken = Vec::new();
    for (chapter, text) in chapters.iter().zip(&texts) {
        let (begin, end) = (text.find("<main>").unwrap_or(0), text.find("</main>").unwrap_or(text.len()));
        let mut changed = text[..begin].to_owned();
        let mut copied = begin;
        let body = &text[begin..end];
        let mut found: Vec<(usize, &str)> = values(body, "href").chain(values(body, "src")).collect();
        found.sort_unstable();
        for (place, target) in found {
            match pages.lead(chapter, target) {
                Ok(Some(other)) => {
                    changed.push_str(&text[copied..begin + place]);
                    changed.push_str(&other);
                    copied = begin + place + target.len();
                }
                Ok(None) => {}
                Err(why) => broken.push(format!("{}: {target}: {why}", chapter.origin.display())),
            }
        }
        changed.push_str(&text[copied..]);
        fs::write(book.join(&chapter.page), changed)
            .map_err(|error| format!("cannot write {}: {error}", chapter.page.display()))?;
    }
    broken.extend(pages.beside()?);
    if broken.is_empty() { Ok(()) } else { Err(format!("links that lead nowhere:\n{}", broken.join("\n"))) }
}

impl Pages<'_> {
    /// Where a link of a chapter has to lead in the book, if elsewhere than mdBook lets it.
    fn lead(&self, chapter: &Chapter, target: &str) -> Result<Option<String>, Failure> {
        if target.contains("://") || target.starts_with("mailto:") {
            return Ok(None);
        }
        let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        if path.is_empty() {
            return self.has_anchor(&chapter.page, anchor).map(|()| None);
        }
        let (folder, of_page) = (parent(&chapter.origin), parent(&chapter.page));
        // mdBook took every link to Markdown for one to a page.
        let file = [path.replace(".html", ".md"), path.to_owned()].map(|path| resolve(folder, &path));
        if let Some(page) = file.iter().find_map(|file| self.of_files.get(&**file)) {
            self.has_anchor(page, anchor)?;
            let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
            return Ok(Some(format!("{}{anchor}", relative(of_page, page))));
        }
        if self.book.join(resolve(of_page, path)).is_file() {
            return Ok(None);
        }
        let file = file.iter().find(|file| root().join(file).is_file()).ok_or("there is no such file")?;
        let copy = Path::new(FILES).join(file);
        let copied = fs::create_dir_all(self.book.join(parent(&copy)))
            .and_then(|()| fs::copy(root().join(file), self.book.join(&copy)));
        copied.map_err(|error| format!("cannot copy {}: {error}", file.display()))?;
        Ok(Some(relative(of_page, &copy)))
    }

    fn has_anchor(&self, page: &Path, anchor: Option<&str>) -> Result<(), Failure> {
        let Some(anchor) = anchor else { return Ok(()) };
        let is_there = self.anchors.get(page).is_some_and(|anchors| anchors.contains(anchor));
        if is_there { Ok(()) } else { Err(format!("{} has no #{anchor}", page.display())) }
    }

    /// The links of documents beside the book that lead to no chapter, or to no heading of it.
    fn beside(&self) -> Result<Vec<String>, Failure> {
        let mut broken = Vec::new();
        for document in BESIDE {
            let text = read(Path::new(document))?;
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            for target in targets.filter(|target| target.starts_with("docs/") && target.contains(".md")) {
                let (path, anchor) = target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at)));
                let page = self.of_files.get(Path::new(path)).ok_or("not a chapter of the book".to_owned());
                if let Err(why) = page.and_then(|page| self.has_anchor(page, anchor)) {
                    broken.push(format!("{document}: {target}: {why}"));
                }
            }
        }
        Ok(broken)
    }
}

/// The values of an attribute in a page, and where they begin.
fn values<'t>(text: &'t str, attribute: &str) -> impl Iterator<Item = (usize, &'t str)> {
    let mark = format!(" {attribute}=\"");
    let length = mark.len();
    let places: Vec<usize> = text.match_indices(&mark).map(|(place, _)| place + length).collect();
    places.into_iter().filter_map(|place| Some((place, text[place..].split('"').next()?)))
}

/// A path as it is written in a folder, without `..`.
pub(super) fn resolve(folder: &Path, path: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => resolved.push(part),
        }
    }
    resolved
}

/// The way from a folder of the book to a file of it.
fn relative(folder: &Path, file: &Path) -> String {
    let up = "../".repeat(folder.components().count());
    format!("{up}{}", file.display())
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

#[cfg(test)]
mod tests {
    use super::{relative, resolve, values};
    use std::path::Path;

    #[test]
    fn a_path_is_resolved_and_made_relative_again() {
        assert_eq!(resolve(Path::new("docs/book/src/a"), "../../../x.md"), Path::new("docs/x.md"));
        assert_eq!(relative(Path::new("a"), Path::new("b/c.html")), "../b/c.html");
        assert_eq!(relative(Path::new(""), Path::new("b/c.html")), "b/c.html");
    }

    #[test]
    fn values_of_an_attribute_are_found_where_they_are() {
        let text = "<a href=\"x\"></a><img src=\"y\"><a class=\"b\" href=\"zz#q\">";
        assert_eq!(values(text, "href").map(|(_, value)| value).collect::<Vec<_>>(), ["x", "zz#q"]);
        assert!(values(text, "href").all(|(place, value)| text[place..].starts_with(value)));
    }
}
