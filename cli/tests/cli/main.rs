//! The tool against real servers: $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE. test.sh sets both.

mod connections;
mod lists;
mod losses;
mod runs;
mod support;
mod terminals;
