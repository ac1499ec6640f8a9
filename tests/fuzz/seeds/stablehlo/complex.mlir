module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> (tensor<3x5xf32> {jax.result_info = "result[0]"}, tensor<5xf32> {jax.result_info = "result[1]"}, tensor<3x3xf32> {jax.result_info = "result[2]"}, tensor<3x5xf32> {jax.result_info = "result[3]"}, tensor<3xi1> {jax.result_info = "result[4]"}, tensor<5x5xf32> {jax.result_info = "result[5]"}) {
    %0 = stablehlo.complex %arg0, %arg1 : tensor<3x5xcomplex<f32>>
    %1 = call @fft(%0) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
    %cst = stablehlo.constant dense<(1.000000e+00,-2.000000e+00)> : tensor<complex<f32>>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f32>>) -> tensor<3x5xcomplex<f32>>
    %3 = stablehlo.multiply %1, %2 : tensor<3x5xcomplex<f32>>
    %4 = stablehlo.slice %arg0 [0:1, 0:1] : (tensor<3x5xf32>) -> tensor<1x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x1xf32>) -> tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.compare GT, %5, %cst_0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.convert %6 : (tensor<i1>) -> tensor<i32>
    %8 = "stablehlo.case"(%7) ({
      %29 = stablehlo.abs %3 : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>
      stablehlo.return %29 : tensor<3x5xf32>
    }, {
      %29 = stablehlo.multiply %0, %3 : tensor<3x5xcomplex<f32>>
      %30 = stablehlo.real %29 : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>
      stablehlo.return %30 : tensor<3x5xf32>
    }) : (tensor<i32>) -> tensor<3x5xf32>
    %cst_1 = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %9 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0] : (tensor<3x5xcomplex<f32>>, tensor<complex<f32>>) -> tensor<5xcomplex<f32>>
    %10 = stablehlo.slice %0 [0:1, 0:5] : (tensor<3x5xcomplex<f32>>) -> tensor<1x5xcomplex<f32>>
    %11 = stablehlo.reshape %10 : (tensor<1x5xcomplex<f32>>) -> tensor<5xcomplex<f32>>
    %12 = stablehlo.divide %9, %11 : tensor<5xcomplex<f32>>
    %13 = stablehlo.real %12 : (tensor<5xcomplex<f32>>) -> tensor<5xf32>
    %14 = stablehlo.transpose %3, dims = [1, 0] : (tensor<3x5xcomplex<f32>>) -> tensor<5x3xcomplex<f32>>
    %15 = stablehlo.dot_general %0, %14, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x5xcomplex<f32>>, tensor<5x3xcomplex<f32>>) -> tensor<3x3xcomplex<f32>>
    %16 = stablehlo.sqrt %15 : tensor<3x3xcomplex<f32>>
    %17 = stablehlo.imag %16 : (tensor<3x3xcomplex<f32>>) -> tensor<3x3xf32>
    %18 = call @fft_0(%arg0) : (tensor<3x5xf32>) -> tensor<3x3xcomplex<f32>>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %19 = call @_pad(%18, %c) : (tensor<3x3xcomplex<f32>>, tensor<i32>) -> tensor<3x3xcomplex<f32>>
    %20 = call @fft_1(%19) : (tensor<3x3xcomplex<f32>>) -> tensor<3x5xf32>
    %21 = stablehlo.slice %0 [0:3, 0:2] : (tensor<3x5xcomplex<f32>>) -> tensor<3x2xcomplex<f32>>
    %cst_2 = stablehlo.constant dense<(1.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %22 = stablehlo.reduce(%21 init: %cst_2) applies stablehlo.multiply across dimensions = [1] : (tensor<3x2xcomplex<f32>>, tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
    %23 = stablehlo.slice %0 [0:3, 0:1] : (tensor<3x5xcomplex<f32>>) -> tensor<3x1xcomplex<f32>>
    %24 = stablehlo.reshape %23 : (tensor<3x1xcomplex<f32>>) -> tensor<3xcomplex<f32>>
    %25 = stablehlo.compare EQ, %22, %24, FLOAT : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xi1>
    %26 = stablehlo.concatenate %0, %3, dim = 0 : (tensor<3x5xcomplex<f32>>, tensor<3x5xcomplex<f32>>) -> tensor<6x5xcomplex<f32>>
    %27 = stablehlo.slice %26 [1:6, 0:5] : (tensor<6x5xcomplex<f32>>) -> tensor<5x5xcomplex<f32>>
    %28 = stablehlo.real %27 : (tensor<5x5xcomplex<f32>>) -> tensor<5x5xf32>
    return %8, %13, %17, %20, %25, %28 : tensor<3x5xf32>, tensor<5xf32>, tensor<3x3xf32>, tensor<3x5xf32>, tensor<3xi1>, tensor<5x5xf32>
  }
  func.func private @fft(%arg0: tensor<3x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = FFT, length = [5] : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
    return %0 : tensor<3x5xcomplex<f32>>
  }
  func.func private @fft_0(%arg0: tensor<3x5xf32>) -> tensor<3x3xcomplex<f32>> {
    %0 = stablehlo.fft %arg0, type = RFFT, length = [5] : (tensor<3x5xf32>) -> tensor<3x3xcomplex<f32>>
    return %0 : tensor<3x3xcomplex<f32>>
  }
  func.func private @_pad(%arg0: tensor<3x3xcomplex<f32>>, %arg1: tensor<i32>) -> tensor<3x3xcomplex<f32>> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<complex<f32>>
    %1 = stablehlo.pad %arg0, %0, low = [0, 0], high = [0, 0], interior = [0, 0] : (tensor<3x3xcomplex<f32>>, tensor<complex<f32>>) -> tensor<3x3xcomplex<f32>>
    return %1 : tensor<3x3xcomplex<f32>>
  }
  func.func private @fft_1(%arg0: tensor<3x3xcomplex<f32>>) -> tensor<3x5xf32> {
    %0 = stablehlo.fft %arg0, type = IRFFT, length = [5] : (tensor<3x3xcomplex<f32>>) -> tensor<3x5xf32>
    return %0 : tensor<3x5xf32>
  }
}
