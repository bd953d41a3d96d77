//! One run of the benchmark: what is wanted of it, and what is done.

use crate::measure::Pace;
use crate::report::Table;

/// A run, table by table.
pub(crate) struct Session {
    pub(crate) pace: Pace,
    /// Part of the names of the workloads to run.
    only: Option<String>,
    tables: Vec<Table>,
}

impl Session {
    pub(crate) fn new(pace: Pace, only: Option<String>) -> Session {
        Session { pace, only, tables: Vec::new() }
    }

    /// Whether to run the workload of this name.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part))
    }

    /// Prints a table and keeps it for the report.
    pub(crate) fn add(&mut self, table: Table) {
        print!("{}", table.to_markdown());
        self.tables.push(table);
    }

    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }
}
