// The part of a DSP48E2 that nf_mac_cell uses: A * B through one register each, MREG, and
// P <= W + X + Y + Z without carries. Anything else stops the simulation.
// The file is named for what it is; the module has the name of the primitive.
/* verilator lint_off DECLFILENAME */
// Ports and parameters of the primitive that the modelled part does not read.
/* verilator lint_off UNUSED */
// Outputs of the primitive that the modelled part does not have.
/* verilator lint_off UNDRIVEN */
module DSP48E2 #(
  parameter AMULTSEL = "A", parameter BMULTSEL = "B",
  parameter A_INPUT = "DIRECT", parameter B_INPUT = "DIRECT",
  parameter USE_MULT = "MULTIPLY", parameter USE_SIMD = "ONE48",
  parameter integer AREG = 1, parameter integer BREG = 1,
  parameter integer ACASCREG = 1, parameter integer BCASCREG = 1,
  parameter integer MREG = 1, parameter integer PREG = 1, parameter integer OPMODEREG = 1,
  parameter integer ADREG = 1, parameter integer DREG = 1, parameter integer CREG = 1,
  parameter integer ALUMODEREG = 1, parameter integer CARRYINREG = 1,
  parameter integer CARRYINSELREG = 1, parameter integer INMODEREG = 1
) (
  input CLK, input [29:0] A, input [17:0] B, input [47:0] C, input [26:0] D,
  input [8:0] OPMODE, input [3:0] ALUMODE, input [4:0] INMODE,
  input CARRYIN, input [2:0] CARRYINSEL, input CARRYCASCIN, input MULTSIGNIN,
  input [29:0] ACIN, input [17:0] BCIN, input [47:0] PCIN,
  input CEA1, input CEA2, input CEB1, input CEB2, input CEAD, input CEALUMODE, input CEC,
  input CECARRYIN, input CECTRL, input CED, input CEINMODE, input CEM, input CEP,
  input RSTA, input RSTALLCARRYIN, input RSTALUMODE, input RSTB, input RSTC, input RSTCTRL,
  input RSTD, input RSTINMODE, input RSTM, input RSTP,
  output [47:0] P, output [47:0] PCOUT, output [29:0] ACOUT, output [17:0] BCOUT,
  output CARRYCASCOUT, output [3:0] CARRYOUT, output MULTSIGNOUT, output OVERFLOW,
  output PATTERNBDETECT, output PATTERNDETECT, output UNDERFLOW, output [7:0] XOROUT
);
  reg signed [26:0] a2 = 0;
  reg signed [17:0] b2 = 0;
  reg signed [44:0] mreg = 0;
  reg [8:0] opmode = 0;
  reg [47:0] preg = 0;
  wire [47:0] m = {{3{mreg[44]}}, mreg};
  // X and Y together select the product; each alone is half of it and has no meaning here.
  wire [47:0] xy = (opmode[3:0] == 4'b0101) ? m : 48'd0;
  wire [47:0] z = (opmode[6:4] == 3'b001) ? PCIN : (opmode[6:4] == 3'b010) ? preg : 48'd0;
  assign P = preg;
  assign PCOUT = preg;
  always @(posedge CLK) begin
    if (CEA2) a2 <= A[26:0];
    if (CEB2) b2 <= B;
    if (CEM) mreg <= a2 * b2;
    if (CECTRL) opmode <= OPMODE;
    if (CEP) preg <= xy + z;
    if (opmode[3:0] != 4'b0101 && opmode[3:0] != 4'b0000) begin
      $display("X/Y multiplexer setting is not modelled");
      $finish;
    end
    if (opmode[8:7] != 2'b00 || (opmode[6:4] != 3'b000 && opmode[6:4] != 3'b001 && opmode[6:4] != 3'b010)) begin
      $display("W/Z multiplexer setting is not modelled");
      $finish;
    end
    if (ALUMODE != 0 || INMODE != 0 || CARRYIN || CARRYINSEL != 0) begin
      $display("only the plain sum is modelled");
      $finish;
    end
    if (RSTA || RSTB || RSTM || RSTP || RSTCTRL || RSTALUMODE || RSTINMODE || RSTALLCARRYIN) begin
      $display("resets are not modelled");
      $finish;
    end
  end
  initial
    if (AREG != 1 || BREG != 1 || ACASCREG != 1 || BCASCREG != 1 || MREG != 1 || PREG != 1
        || OPMODEREG != 1 || ALUMODEREG != 0 || INMODEREG != 0 || CARRYINREG != 0
        || CARRYINSELREG != 0 || AMULTSEL != "A" || BMULTSEL != "B" || USE_MULT != "MULTIPLY"
        || USE_SIMD != "ONE48" || A_INPUT != "DIRECT" || B_INPUT != "DIRECT") begin
      $display("register setting is not modelled");
      $finish;
    end
endmodule
