//! Results as a table on stderr and JSON lines on stdout.

use serde_json::{Map, Value};

/// A table whose rows are also printed as JSON objects with `"v": 1` and the table's name.
pub struct Report {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Report {
    /// An empty table. `name` becomes the JSON member `"table"`, each column a member.
    pub fn new(name: &'static str, columns: &[&'static str]) -> Self {
        Report {
            name,
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: one value a column.
    ///
    /// # Panics
    /// If the number of values is not the number of columns.
    pub fn row(&mut self, values: Vec<Value>) {
        assert_eq!(values.len(), self.columns.len());
        self.rows.push(values);
    }

    /// Prints the table on stderr and the JSON lines on stdout.
    pub fn print(&self) {
        let text: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(plain).collect())
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|c| {
                text.iter()
                    .map(|row| row[c].len())
                    .chain([self.columns[c].len()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = String::from(" ");
            for (cell, width) in cells.zip(&widths) {
                out.push_str(&format!(" {cell:<width$} "));
            }
            eprintln!("{}", out.trim_end());
        };
        eprintln!("{}", self.name);
        line(&mut self.columns.iter().copied());
        for row in &text {
            line(&mut row.iter().map(String::as_str));
        }
        for row in &self.rows {
            let mut object = Map::new();
            object.insert("v".into(), 1.into());
            object.insert("table".into(), self.name.into());
            for (column, value) in self.columns.iter().zip(row) {
                object.insert((*column).into(), value.clone());
            }
            println!("{}", Value::Object(object));
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(0.0))
        }
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}
