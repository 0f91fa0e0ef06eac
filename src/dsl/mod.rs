//! The hardware description DSL: a netlist built at run time, checked, printed as Verilog and interpreted.
