// Self-checking Verilog test bench of the trainer's top level, for simulators without C++
// (Icarus Verilog, Vivado xsim). It loads a state, trains a few samples of real text and
// compares every result and, at the end, every word of weights and moments with the
// reference (`===`, so an X is a difference). The `.mem` files lie beside it.
`timescale 1ns / 1ps
`default_nettype none

module tb_nf_trainer;

    `include "tb_params.vh"

    reg aclk = 1'b0;
    reg aresetn = 1'b0;
    always #2 aclk = ~aclk;

    reg  [11:0] awaddr = 12'd0;
    reg         awvalid = 1'b0;
    wire        awready;
    reg  [31:0] wdata = 32'd0;
    reg         wvalid = 1'b0;
    wire        wready;
    wire [1:0]  bresp;
    wire        bvalid;
    reg  [11:0] araddr = 12'd0;
    reg         arvalid = 1'b0;
    wire        arready;
    wire [31:0] rdata;
    wire [1:0]  rresp;
    wire        rvalid;

    reg  [31:0]  token_data = 32'd0;
    reg          token_valid = 1'b0;
    reg          token_last = 1'b0;
    wire         token_ready;
    wire [31:0]  result_data;
    wire [3:0]   result_keep;
    wire         result_valid;
    wire         result_last;
    reg  [127:0] state_in_data = 128'd0;
    reg          state_in_valid = 1'b0;
    reg          state_in_last = 1'b0;
    wire         state_in_ready;
    wire [127:0] state_out_data;
    wire [15:0]  state_out_keep;
    wire         state_out_valid;
    wire         state_out_last;
    wire         irq;

    nf_trainer dut (
        .aclk(aclk),
        .aresetn(aresetn),
        .s_axil_awaddr(awaddr),
        .s_axil_awvalid(awvalid),
        .s_axil_awready(awready),
        .s_axil_wdata(wdata),
        .s_axil_wstrb(4'hF),
        .s_axil_wvalid(wvalid),
        .s_axil_wready(wready),
        .s_axil_bresp(bresp),
        .s_axil_bvalid(bvalid),
        .s_axil_bready(1'b1),
        .s_axil_araddr(araddr),
        .s_axil_arvalid(arvalid),
        .s_axil_arready(arready),
        .s_axil_rdata(rdata),
        .s_axil_rresp(rresp),
        .s_axil_rvalid(rvalid),
        .s_axil_rready(1'b1),
        .s_axis_token_tdata(token_data),
        .s_axis_token_tkeep(4'hF),
        .s_axis_token_tlast(token_last),
        .s_axis_token_tvalid(token_valid),
        .s_axis_token_tready(token_ready),
        .m_axis_result_tdata(result_data),
        .m_axis_result_tkeep(result_keep),
        .m_axis_result_tlast(result_last),
        .m_axis_result_tvalid(result_valid),
        .m_axis_result_tready(1'b1),
        .s_axis_weight_tdata(state_in_data),
        .s_axis_weight_tkeep(16'hFFFF),
        .s_axis_weight_tlast(state_in_last),
        .s_axis_weight_tvalid(state_in_valid),
        .s_axis_weight_tready(state_in_ready),
        .m_axis_weight_tdata(state_out_data),
        .m_axis_weight_tkeep(state_out_keep),
        .m_axis_weight_tlast(state_out_last),
        .m_axis_weight_tvalid(state_out_valid),
        .m_axis_weight_tready(1'b1),
        .irq(irq)
    );

    reg [127:0] state_first [0:STATE_BEATS-1];
    reg [127:0] state_final [0:STATE_BEATS-1];
    reg [31:0]  tokens [0:STEPS*TOKENS-1];
    reg [31:0]  expected [0:STEPS*CHECKED_WORDS-1];

    integer matched = 0;
    integer mismatches = 0;
    integer step;
    integer i;
    integer word;

    task check32(input [31:0] got, input [31:0] want, input integer index);
        begin
            if (got === want) begin
                matched = matched + 1;
            end else begin
                mismatches = mismatches + 1;
                if (mismatches < 10)
                    $display("step %0d result word %0d: got %h, want %h", step, index, got, want);
            end
        end
    endtask

    task write_register(input [11:0] address, input [31:0] value);
        reg aw_done;
        reg w_done;
        begin
            @(negedge aclk);
            awaddr = address;
            wdata = value;
            awvalid = 1'b1;
            wvalid = 1'b1;
            aw_done = 1'b0;
            w_done = 1'b0;
            while (!(aw_done && w_done)) begin
                @(posedge aclk);
                if (awvalid && awready) aw_done = 1'b1;
                if (wvalid && wready) w_done = 1'b1;
                @(negedge aclk);
                awvalid = !aw_done;
                wvalid = !w_done;
            end
            while (bvalid !== 1'b1) @(negedge aclk);
            @(negedge aclk);
        end
    endtask

    initial begin
        $readmemh("state_first.mem", state_first);
        $readmemh("state_final.mem", state_final);
        $readmemh("tokens.mem", tokens);
        $readmemh("expected.mem", expected);
        repeat (16) @(negedge aclk);
        aresetn = 1'b1;
        repeat (4) @(negedge aclk);

        // Load weights, moments and counters.
        write_register(CONTROL_ADDRESS, CONTROL_STATE_WRITE);
        i = 0;
        while (i < STATE_BEATS) begin
            state_in_data = state_first[i];
            state_in_last = (i == STATE_BEATS - 1);
            state_in_valid = 1'b1;
            @(posedge aclk);
            if (state_in_ready === 1'b1) i = i + 1;
            @(negedge aclk);
        end
        state_in_valid = 1'b0;
        repeat (64) @(negedge aclk);

        // Train, one sample a command.
        for (step = 0; step < STEPS; step = step + 1) begin
            write_register(CONTROL_ADDRESS, CONTROL_TRAIN);
            i = 0;
            while (i < TOKENS) begin
                token_data = tokens[step * TOKENS + i];
                token_last = (i == TOKENS - 1);
                token_valid = 1'b1;
                @(posedge aclk);
                if (token_ready === 1'b1) i = i + 1;
                @(negedge aclk);
            end
            token_valid = 1'b0;
            word = 0;
            i = 0;
            while (i == 0) begin
                @(posedge aclk);
                if (result_valid === 1'b1) begin
                    if (word < CHECKED_WORDS)
                        check32(result_data, expected[step * CHECKED_WORDS + word], word);
                    word = word + 1;
                    if (result_last === 1'b1) i = 1;
                end
            end
            $display("step %0d done at cycle %0d", step + 1, $time / 4);
        end

        // Read everything back.
        @(negedge aclk);
        write_register(CONTROL_ADDRESS, CONTROL_STATE_READ);
        i = 0;
        while (i < STATE_BEATS) begin
            @(posedge aclk);
            if (state_out_valid === 1'b1) begin
                if (state_out_data === state_final[i]) begin
                    matched = matched + 3;
                end else begin
                    mismatches = mismatches + 1;
                    if (mismatches < 10)
                        $display("state beat %0d: got %h, want %h", i, state_out_data, state_final[i]);
                end
                i = i + 1;
            end
        end
        if (mismatches == 0 && matched > 0)
            $display("verdict match: %0d words compared", matched);
        else
            $display("verdict MISMATCH: %0d of %0d words differ", mismatches, matched + mismatches);
        $finish;
    end

    // Watchdog.
    initial begin
        repeat (WATCHDOG_CYCLES) @(negedge aclk);
        $display("verdict MISMATCH: no end after %0d cycles", WATCHDOG_CYCLES);
        $finish;
    end

endmodule

`default_nettype wire
