//! How a model's rules are written down: a name for each, the simulator's, and a property that says
//! that it was never broken.

/// Makes an enum of rules, and what Stateright calls their properties.
macro_rules! rules {
    ($state:ty { $($rule:ident = $text:literal,)+ }) => {
        /// A rule that must hold after every step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule { $(#[doc = $text] $rule,)+ }

        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)+];

            /// In words: those of the simulator.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $text,)+ }
            }

            /// "Never broken", for each of them.
            pub(crate) fn properties<M>() -> Vec<stateright::Property<M>>
            where
                M: stateright::Model<State = $state>,
            {
                vec![$(stateright::Property::always($text, |_: &M, state: &$state| {
                    state.broken != Some(Rule::$rule)
                }),)+]
            }
        }
    };
}

pub(crate) use rules;
