module @jit_branches attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<i32>) -> (tensor<4x4xf32> {jax.result_info = "result[0]"}, tensor<4x4xf32> {jax.result_info = "result[1]"}, tensor<4x4xf32> {jax.result_info = "result[2]"}, tensor<f32> {jax.result_info = "result[3][0]"}, tensor<i32> {jax.result_info = "result[3][1]"}) {
    %c = stablehlo.constant dense<2> : tensor<i32>
    %0 = stablehlo.compare GT, %arg1, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.convert %0 : (tensor<i1>) -> tensor<i32>
    %2 = "stablehlo.case"(%1) ({
      %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %12 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %13 = stablehlo.add %arg0, %12 : tensor<4x4xf32>
      stablehlo.return %13 : tensor<4x4xf32>
    }, {
      %cst_4 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %12 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %13 = stablehlo.multiply %arg0, %12 : tensor<4x4xf32>
      stablehlo.return %13 : tensor<4x4xf32>
    }) : (tensor<i32>) -> tensor<4x4xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.compare GT, %3, %cst_0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.convert %4 : (tensor<i1>) -> tensor<i32>
    %6 = "stablehlo.case"(%5) ({
      %12 = stablehlo.negate %arg0 : tensor<4x4xf32>
      stablehlo.return %12 : tensor<4x4xf32>
    }, {
      stablehlo.return %arg0 : tensor<4x4xf32>
    }) : (tensor<i32>) -> tensor<4x4xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<3> : tensor<i32>
    %7 = stablehlo.clamp %c_1, %arg1, %c_2 : tensor<i32>
    %8 = "stablehlo.case"(%7) ({
      %12 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
      %13 = stablehlo.broadcast_in_dim %12, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %14 = stablehlo.add %arg0, %13 : tensor<4x4xf32>
      stablehlo.return %14 : tensor<4x4xf32>
    }, {
      %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %12 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %13 = stablehlo.dot_general %arg0, %12, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      stablehlo.return %13 : tensor<4x4xf32>
    }, {
      %12 = stablehlo.slice %arg0 [0:1, 0:1] : (tensor<4x4xf32>) -> tensor<1x1xf32>
      %13 = stablehlo.reshape %12 : (tensor<1x1xf32>) -> tensor<f32>
      %14 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %15 = stablehlo.multiply %arg0, %14 : tensor<4x4xf32>
      stablehlo.return %15 : tensor<4x4xf32>
    }, {
      %12 = stablehlo.tanh %arg0 : tensor<4x4xf32>
      stablehlo.return %12 : tensor<4x4xf32>
    }) : (tensor<i32>) -> tensor<4x4xf32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %9 = stablehlo.compare GT, %arg1, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %10 = stablehlo.convert %9 : (tensor<i1>) -> tensor<i32>
    %11:2 = "stablehlo.case"(%10) ({
      %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %12 = stablehlo.reduce(%arg0 init: %cst_4) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<f32>
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %13 = stablehlo.multiply %arg1, %c_5 : tensor<i32>
      stablehlo.return %12, %13 : tensor<f32>, tensor<i32>
    }, {
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %12 = stablehlo.reduce(%arg0 init: %cst_4) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %12, %arg1 : tensor<f32>, tensor<i32>
    }) : (tensor<i32>) -> (tensor<f32>, tensor<i32>)
    return %2, %6, %8, %11#0, %11#1 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<i32>
  }
}
