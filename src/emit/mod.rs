//! Turns a plan into a set of files: Verilog, Tcl, XDC, testbench, manifest.
