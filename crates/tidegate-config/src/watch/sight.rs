//! What has to be watched so that no change of a file is missed.
//!
//! To open a path is to look up one name after the other, each in a folder,
//! and to begin anew where a name is a symbolic link. If any of those lookups
//! came out differently, another file could be meant. So each of them is
//! watched: a name in a folder. Never the file itself, which is gone when
//! another takes its name.
//!
//! A sight is made anew for every reading, and the one before is kept until
//! then: so it never matters what became of folders watched earlier.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::bell::Bell;
use crate::reader::is_listed;

/// How many symbolic links may lead to a file: as many as Linux follows.
const MAX_LINKS: usize = 40;

/// How often a path is followed that leads elsewhere each time. By then its
/// links are watched, and the next change is seen.
const MAX_DETOURS: usize = 3;

/// Whether it is cheap to watch a folder without what is below it, however
/// much that is.
const ANY_FOLDER_IS_CHEAP: bool = cfg!(any(target_os = "linux", target_os = "android"));

pub(super) struct Sight {
    /// None if it is blind.
    watcher: Option<RecommendedWatcher>,
    places: Arc<Mutex<Places>>,
    watched: HashSet<PathBuf>,
    trouble: Option<io::Error>,
}

/// Where changes matter.
#[derive(Default)]
struct Places {
    paths: HashSet<PathBuf>,
    /// Folders whose files are listed.
    listed: HashSet<PathBuf>,
}

impl Sight {
    /// Sees nothing, and does not try to.
    pub(super) fn blind() -> Sight {
        Sight { watcher: None, places: Arc::default(), watched: HashSet::new(), trouble: None }
    }

    /// Rings the bell at every change of what it is made to cover.
    pub(super) fn new(bell: Arc<Bell>) -> Sight {
        let places = Arc::new(Mutex::new(Places::default()));
        let known = Arc::clone(&places);
        let made = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // After an error, events may be missing.
            let matters = event.map_or(true, |event| lock(&known).matter(&event));
            if matters {
                bell.ring();
            }
        });
        match made {
            Ok(watcher) => Sight { watcher: Some(watcher), places, ..Sight::blind() },
            Err(error) => Sight { trouble: Some(io_error(error)), ..Sight::blind() },
        }
    }

    /// Why something cannot be seen, told once.
    pub(super) fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Sees to it that no change of what is at a path is missed from now on.
    pub(super) fn cover(&mut self, path: &Path) {
        if self.watcher.is_none() {
            return;
        }
        let mut route = Route::of(path);
        for _ in 0..MAX_DETOURS {
            self.follow(&route);
            // A link may have been pointed elsewhere before it was watched.
            match Route::of(path) {
                same if same == route => break,
                other => route = other,
            }
        }
    }

    fn follow(&mut self, route: &Route) {
        for Lookup { folder, name, is_decisive } in &route.lookups {
            lock(&self.places).paths.extend([folder.join(name), folder.clone()]);
            if *is_decisive || ANY_FOLDER_IS_CHEAP {
                self.watch(folder, *is_decisive);
            }
        }
        if route.end.is_dir() {
            lock(&self.places).listed.insert(route.end.clone());
            self.watch(&route.end, true);
        }
    }

    /// The places must not be locked meanwhile: the watcher's thread may be
    /// waiting for them, and is waited for here.
    fn watch(&mut self, folder: &Path, is_decisive: bool) {
        let Some(watcher) = &mut self.watcher else { return };
        if self.watched.contains(folder) {
            return;
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => drop(self.watched.insert(folder.to_owned())),
            Err(error) if is_decisive => self.trouble = Some(io_error(error)),
            // Folders further up may be unreadable.
            Err(_) => {}
        }
    }
}

impl Places {
    fn matter(&self, event: &Event) -> bool {
        let is_change = match event.kind {
            // Reading is no change, and this process reads.
            EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
            EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => {
                true
            }
        };
        let is_in_list =
            |path: &Path| is_listed(path) && path.parent().is_some_and(|folder| self.listed.contains(folder));
        let is_known = |path: &PathBuf| self.paths.contains(path) || self.listed.contains(path) || is_in_list(path);
        is_change && (event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(is_known))
    }
}

fn lock(places: &Mutex<Places>) -> std::sync::MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io_error(error: notify::Error) -> io::Error {
    match error.kind {
        notify::ErrorKind::Io(error) => error,
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::PathNotFound
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_)
        | notify::ErrorKind::MaxFilesWatch => io::Error::other(error.to_string()),
    }
}

/// How a path leads to what is there.
#[derive(PartialEq, Eq)]
struct Route {
    lookups: Vec<Lookup>,
    /// Where it ends, free of links.
    end: PathBuf,
}

/// A name to be looked up in a folder.
#[derive(PartialEq, Eq)]
struct Lookup {
    folder: PathBuf,
    name: OsString,
    /// Whether it is a link, the last name, or one that is not there.
    is_decisive: bool,
}

impl Route {
    fn of(path: &Path) -> Route {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut route = Route { lookups: Vec::new(), end: PathBuf::new() };
        let mut links = 0;
        // What is left of the way, the next step last.
        let mut ahead = steps(&path);
        while let Some(step) = ahead.pop() {
            let name = match step {
                Step::Root(root) => {
                    route.end = root;
                    continue;
                }
                Step::Up => {
                    route.end.pop();
                    continue;
                }
                Step::Name(name) => name,
            };
            let folder = route.end.clone();
            route.end.push(&name);
            let link = fs::read_link(&route.end).ok().filter(|_| links < MAX_LINKS);
            let is_decisive = link.is_some() || ahead.is_empty() || fs::symlink_metadata(&route.end).is_err();
            route.lookups.push(Lookup { folder, name, is_decisive });
            match link {
                Some(target) => {
                    links += 1;
                    route.end.pop();
                    ahead.extend(steps(&target));
                }
                // There is no way on from what is not there.
                None if fs::symlink_metadata(&route.end).is_err() => break,
                None => {}
            }
        }
        route
    }
}

enum Step {
    Root(PathBuf),
    Up,
    Name(OsString),
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<Step> {
    let step = |component: Component<'_>| match component {
        Component::Prefix(_) | Component::CurDir => None,
        Component::RootDir => Some(Step::Root(path.ancestors().last().unwrap_or(path).to_owned())),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
    };
    let mut steps: Vec<Step> = path.components().filter_map(step).collect();
    steps.reverse();
    steps
}
