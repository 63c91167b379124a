//! What offcodes and applications are, as files say it: `offcode.toml` of each package, and the
//! layout file of an application.
//!
//! Everything is bounded, and every fault has its line and says what to write. Never runs, compiles
//! or loads a body.
//!
//! Modules in reading order: [`name`] and [`quantity`] (words of descriptions), [`fault`], `table`
//! (TOML with lines), [`offcode`] (one offcode), [`xml`] (the paper's form of it), [`package`] (a
//! directory with its description and bodies), [`app`] (an application's layout file),
//! [`application`] (all of them together), [`skeleton`] (the files of a new offcode).

pub mod app;
pub mod application;
pub mod fault;
pub mod name;
pub mod offcode;
pub mod package;
pub mod quantity;
pub mod skeleton;
mod table;
pub mod xml;

pub use app::AppFile;
pub use application::Application;
pub use fault::{DescribeError, TextFault};
pub use offcode::OffcodeFile;
pub use package::OffcodePackage;
pub use skeleton::{Skeleton, SkeletonLanguage};
pub use xml::Assumption;
