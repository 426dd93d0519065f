//! The petasos command
