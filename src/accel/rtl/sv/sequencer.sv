// The loops around an instruction's kernel. Each step takes `per_step` + 1 cycles, and `after[l]` more pass when all
// iterations of loop l are done, loop LOOPS - 1 being the innermost. A run is over when its last cycle has passed and
// nothing holds it.
module sequencer #(
    parameter int LOOPS = 1,
    parameter int EXTENT = 10,
    parameter int WAIT = 8
) (
    input logic clk,
    input logic reset,
    input logic start,
    input logic hold,
    input logic [LOOPS*EXTENT-1:0] extents,
    input logic [WAIT-1:0] per_step,
    input logic [LOOPS*WAIT-1:0] after,
    output logic active,
    output logic step,
    output logic [LOOPS*EXTENT-1:0] at,
    output logic [LOOPS-1:0] advance,
    output logic finish
);
  logic [WAIT-1:0] left;
  logic steps_are_done;

  // Whether this step is the last one of loop l and of all loops within.
  logic [LOOPS:0] last;
  logic [WAIT-1:0] pause;
  always_comb begin
    last[LOOPS] = 1'b1;
    pause = per_step;
    for (int l = LOOPS - 1; l >= 0; l--) begin
      last[l] = last[l+1] && (at[l*EXTENT+:EXTENT] + 1'b1 == extents[l*EXTENT+:EXTENT]);
      advance[l] = step && last[l+1] && !last[l];
      if (last[l]) pause = pause + after[l*WAIT+:WAIT];
    end
  end

  wire runs = start || active;
  assign step = runs && left == '0 && !steps_are_done;
  wire is_over = step ? (last[0] && pause == '0) : (steps_are_done && left <= WAIT'(1));
  assign finish = runs && is_over && !hold;

  always_ff @(posedge clk) begin
    if (reset || finish) begin
      active <= 1'b0;
      steps_are_done <= 1'b0;
      left <= '0;
      at <= '0;
    end else if (runs) begin
      active <= 1'b1;
      if (step) begin
        left <= pause;
        steps_are_done <= last[0];
        for (int l = 0; l < LOOPS; l++) begin
          if (advance[l]) at[l*EXTENT+:EXTENT] <= at[l*EXTENT+:EXTENT] + 1'b1;
          else if (last[l+1]) at[l*EXTENT+:EXTENT] <= '0;
        end
      end else if (left != '0) begin
        left <= left - 1'b1;
      end
    end
  end
endmodule
