module @jit_products attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<5x6xf32>, %arg2: tensor<3x4x5xf32>) -> (tensor<4x6xf32> {jax.result_info = "result[0]"}, tensor<4x6xf32> {jax.result_info = "result[1]"}, tensor<3x4x4xf32> {jax.result_info = "result[2]"}, tensor<4x4xf32> {jax.result_info = "result[3]"}, tensor<3xf32> {jax.result_info = "result[4]"}, tensor<6xf32> {jax.result_info = "result[5]"}, tensor<5x6xf32> {jax.result_info = "result[6]"}, tensor<2x3x4xf32> {jax.result_info = "result[7]"}, tensor<f32> {jax.result_info = "result[8]"}, tensor<3x4x6xf32> {jax.result_info = "result[9]"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>
    %2 = stablehlo.dot_general %arg0, %1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x5xf32>, tensor<6x5xf32>) -> tensor<4x6xf32>
    %3 = stablehlo.transpose %arg2, dims = [0, 2, 1] : (tensor<3x4x5xf32>) -> tensor<3x5x4xf32>
    %4 = stablehlo.dot_general %arg2, %3, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<3x4x5xf32>, tensor<3x5x4xf32>) -> tensor<3x4x4xf32>
    %5 = stablehlo.dot_general %arg2, %arg2, contracting_dims = [0, 2] x [0, 2], precision = [DEFAULT, DEFAULT] : (tensor<3x4x5xf32>, tensor<3x4x5xf32>) -> tensor<4x4xf32>
    %6 = stablehlo.dot_general %arg2, %arg2, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<3x4x5xf32>, tensor<3x4x5xf32>) -> tensor<3xf32>
    %7 = stablehlo.slice %arg0 [0:1, 0:5] : (tensor<4x5xf32>) -> tensor<1x5xf32>
    %8 = stablehlo.reshape %7 : (tensor<1x5xf32>) -> tensor<5xf32>
    %9 = stablehlo.dot_general %8, %arg1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<5xf32>, tensor<5x6xf32>) -> tensor<6xf32>
    %10 = stablehlo.slice %arg0 [0:1, 0:5] : (tensor<4x5xf32>) -> tensor<1x5xf32>
    %11 = stablehlo.reshape %10 : (tensor<1x5xf32>) -> tensor<5xf32>
    %12 = stablehlo.slice %arg1 [0:1, 0:6] : (tensor<5x6xf32>) -> tensor<1x6xf32>
    %13 = stablehlo.reshape %12 : (tensor<1x6xf32>) -> tensor<6xf32>
    %14 = stablehlo.broadcast_in_dim %11, dims = [0] : (tensor<5xf32>) -> tensor<5x1xf32>
    %15 = stablehlo.broadcast_in_dim %13, dims = [1] : (tensor<6xf32>) -> tensor<1x6xf32>
    %16 = stablehlo.broadcast_in_dim %14, dims = [0, 1] : (tensor<5x1xf32>) -> tensor<5x6xf32>
    %17 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<1x6xf32>) -> tensor<5x6xf32>
    %18 = stablehlo.multiply %16, %17 : tensor<5x6xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x2xf32>
    %20 = stablehlo.dot_general %19, %arg2, contracting_dims = [0] x [2], precision = [DEFAULT, DEFAULT] : (tensor<5x2xf32>, tensor<3x4x5xf32>) -> tensor<2x3x4xf32>
    %21 = stablehlo.reshape %arg0 : (tensor<4x5xf32>) -> tensor<20xf32>
    %22 = stablehlo.reshape %arg0 : (tensor<4x5xf32>) -> tensor<20xf32>
    %23 = stablehlo.dot_general %21, %22, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<20xf32>, tensor<20xf32>) -> tensor<f32>
    %24 = stablehlo.dot_general %arg2, %arg1, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4x5xf32>, tensor<5x6xf32>) -> tensor<3x4x6xf32>
    return %0, %2, %4, %5, %6, %9, %18, %20, %23, %24 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<3x4x4xf32>, tensor<4x4xf32>, tensor<3xf32>, tensor<6xf32>, tensor<5x6xf32>, tensor<2x3x4xf32>, tensor<f32>, tensor<3x4x6xf32>
  }
}
