//! Connections by queue pair number and GID, for the personality roce: who dials whom, and how one finds the other.
