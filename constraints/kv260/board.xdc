# kv260: the design has no package pins of its own, and pl_clk0 is constrained by the processing system's IP.
# Linux on Kria loads the bitstream as firmware; compressed, it fits the default buffer.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
