# zcu102: the design has no package pins of its own, and pl_clk0 is constrained by the processing system's IP.
# A compressed bitstream loads faster from SD card, JTAG and Linux.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
