//! Lookups that a route cannot make.

use super::{Findings, has_parameter};
use crate::config::{Config, Lookup, Piece, Route, Variable};

pub(super) fn lookups(config: &Config, findings: &mut Findings) {
    for (number, route) in config.route.iter().enumerate() {
        let Some(lookup) = &route.reconcile else {
            continue;
        };
        let at = format!("route.{number}.reconcile");
        for why in unfit(config, route, lookup) {
            findings.note(&*at, format!("reconcile: {why}"));
        }
    }
}

fn unfit(config: &Config, route: &Route, lookup: &Lookup) -> Vec<String> {
    let mut found = Vec::new();
    let table = lookup.table();
    if route.pass {
        found.push("the route passes everything through, without keys: remove `pass`".to_owned());
    }
    let is_named = table.ask.pieces.iter().any(|piece| match piece {
        Piece::Value { of, .. } => *of == Variable::Operation,
        Piece::Text(_) => false,
    });
    if table.authorization_file.is_some() && !is_named {
        found.push(
            "with `authorization_file` it is not the caller who asks, and every other value may \
             name another caller's operation: name {operation} in `ask`"
                .to_owned(),
        );
    }
    if table.echo && config.identity.headers == Some(false) {
        found.push(
            "with `echo` an answer names the operation in a header, which `identity` does not send: \
             remove `headers = false` there, or `echo`"
                .to_owned(),
        );
    }
    let asks_by_itself = table.background.is_some();
    if let Some(value) = table.ask.of_the_request().next().filter(|_| asks_by_itself) {
        found.push(format!(
            "`background` asks without a request, and a record keeps no `{value}`: name the \
             operation by {{operation}} alone, or remove `background`"
        ));
    }
    for piece in &table.ask.pieces {
        if let Piece::Value {
            of: Variable::Param(name),
            ..
        } = piece
            && !has_parameter(&route.matches, name)
        {
            found.push(format!(
                "`{{{name}}}` needs {{{name}}} in the route's match; there are {{operation}}, \
                 {{key}} and {{body:MEMBER}} besides"
            ));
        }
    }
    found
}
