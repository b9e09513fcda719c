# The WebAssembly build: all of src/ and one file of exports as a module without a main program.
#
# Three variants are made: carat-simd.wasm (one thread), carat-threads.wasm (shared memory) and carat-relaxed.wasm (threads and
# relaxed SIMD). The package takes the best one that the browser accepts. Each is a build of its own below this one.

set(CARAT_WASM_VARIANT "" CACHE STRING "simd, threads or relaxed; empty: all three")

if(CARAT_WASM_VARIANT STREQUAL "")
    foreach(variant simd threads relaxed)
        add_custom_target(carat-${variant} ALL
            COMMAND ${CMAKE_COMMAND} -S ${CMAKE_SOURCE_DIR} -B ${CMAKE_BINARY_DIR}/${variant} -G ${CMAKE_GENERATOR}
                -DCMAKE_TOOLCHAIN_FILE=${CMAKE_SOURCE_DIR}/cmake/wasi-toolchain.cmake -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
                -DCARAT_WASM_VARIANT=${variant} -DCARAT_DEPS=${CARAT_DEPS} --log-level=WARNING
            COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR}/${variant}
            COMMAND ${CMAKE_COMMAND} -E copy_if_different ${CMAKE_BINARY_DIR}/${variant}/carat.wasm
                ${CMAKE_BINARY_DIR}/carat-${variant}.wasm
            USES_TERMINAL VERBATIM)
    endforeach()
    return()
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
set(features -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext)
set(link_options -mexec-model=reactor -nostartfiles -Wl,--no-entry -Wl,--import-memory -Wl,--gc-sections -Wl,--strip-all
    -Wl,--allow-undefined-file=${CMAKE_SOURCE_DIR}/src/wasm/imports.txt # the functions of webgpu.h
    -Wl,--stack-first -Wl,-z,stack-size=1048576)
if(NOT CARAT_WASM_VARIANT STREQUAL "simd")
    list(APPEND features -matomics)
    # Debian's libc is built without atomics: sound as long as only the first thread allocates, which base/threads.h promises.
    list(APPEND link_options -Wl,--shared-memory -Wl,--max-memory=4294967296 -Wl,--no-check-features
        -Wl,--export=threads_worker_main -Wl,--export=__stack_pointer -Wl,--export=__wasm_init_tls -Wl,--export=__tls_size -Wl,--export=__tls_align)
endif()
if(CARAT_WASM_VARIANT STREQUAL "relaxed")
    list(APPEND features -mrelaxed-simd)
endif()
add_compile_options(${features} -ffunction-sections -fdata-sections -fvisibility=hidden)
include_directories(BEFORE ${CMAKE_SOURCE_DIR}/src/wasm/libc)

# The kernels are compiled for speed, the rest for size.
set(carat_modules base gguf text media ops ref cpu webgpu model lora engine wasm)
set(fast_modules ref cpu)
foreach(module ${carat_modules})
    if(EXISTS ${CMAKE_SOURCE_DIR}/src/${module}/CMakeLists.txt)
        add_subdirectory(src/${module})
    else()
        file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*.c)
        if(sources)
            add_library(carat_${module} OBJECT ${sources})
        endif()
    endif()
    if(TARGET carat_${module})
        target_include_directories(carat_${module} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
        if(EXISTS ${CARAT_DEPS}/wgpu/webgpu.h)
            target_include_directories(carat_${module} PUBLIC ${CARAT_DEPS}/wgpu)
            target_compile_definitions(carat_${module} PUBLIC CARAT_HAVE_WEBGPU=1)
        endif()
        if(NOT module IN_LIST fast_modules)
            target_compile_options(carat_${module} PRIVATE -Os)
        endif()
        list(APPEND carat_objects $<TARGET_OBJECTS:carat_${module}>)
    endif()
endforeach()

add_executable(carat_program ${carat_objects})
set_target_properties(carat_program PROPERTIES OUTPUT_NAME carat SUFFIX .wasm)
target_link_options(carat_program PRIVATE ${link_options})
