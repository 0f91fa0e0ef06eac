# Clock of the core out of context: 150 MHz. Only vivado/ooc.tcl reads this file, with -mode out_of_context;
# a system must not, because its clock comes constrained from the processing system.
create_clock -name aclk -period 6.667 [get_ports aclk]