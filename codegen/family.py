"""The libraries that are described: what their calls have in common, and where their code goes.

One family is one folder of api/ and one client library, or commands alone. Command numbers are
shared by all.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    folder: str       # Below api/, and of the generated types.h and functions.h.
    title: str
    loaded: str       # The library, in words.
    result: str       # The type that every call returns.
    success: str
    invalid: str      # A null pointer, a value beyond its limit.
    bad_handle: str   # A handle that names nothing.
    unsupported: str
    versioned: bool   # Calls say with proc= which version brought them.
    traced: bool      # `flyt trace` sees its calls.
    client: str       # The folder of the generated client side.
    client_space: str  # The C++ namespace of enter(), check() and call().
    client_call: str  # The header that declares them.
    client_hooks: str  # The folder of bodies written by hand.
    server: str       # The same for the server's side.
    server_space: str
    server_request: str
    server_hooks: str
    handlers: str     # The generated table from op to handler, without suffix.
    table: str        # The generated table of the native library's functions, without suffix.
    table_name: str
    page: str         # What becomes of every function, for people.
    exports: bool = True  # There is a client library with functions, and a native one to call.


CUDA = Family(
    folder="cuda", title="the CUDA driver API", loaded="the CUDA driver library", result="CUresult",
    success="CUDA_SUCCESS", invalid="CUDA_ERROR_INVALID_VALUE",
    bad_handle="CUDA_ERROR_INVALID_HANDLE", unsupported="CUDA_ERROR_NOT_SUPPORTED",
    versioned=True, traced=True, client="client", client_space="flyt::client",
    client_call="client/call.h", client_hooks="src/client/hooks", server="server",
    server_space="flyt::server",
    server_request="server/request.h", server_hooks="src/server/hooks",
    handlers="server/handlers", table="driver/table", table_name="Table",
    page="docs/coverage.md")

NVML = Family(
    folder="nvml", title="NVML", loaded="libnvidia-ml.so.1", result="nvmlReturn_t",
    success="NVML_SUCCESS", invalid="NVML_ERROR_INVALID_ARGUMENT",
    bad_handle="NVML_ERROR_INVALID_ARGUMENT", unsupported="NVML_ERROR_NOT_SUPPORTED",
    versioned=False, traced=False, client="nvml_client", client_space="flyt::client::nvml",
    client_call="client/nvml/call.h", client_hooks="src/client/nvml/hooks", server="server",
    server_space="flyt::server::nvml", server_request="server/nvml/request.h",
    server_hooks="src/server/nvml/hooks", handlers="server/nvml_handlers",
    table="driver/nvml_table", table_name="NvmlTable", page="docs/nvml-coverage.md")

ADMIN = Family(
    folder="admin", title="the control of a server", loaded="", result="FlytAdminResult",
    success="FLYT_ADMIN_SUCCESS", invalid="FLYT_ADMIN_INVALID", bad_handle="FLYT_ADMIN_INVALID",
    unsupported="FLYT_ADMIN_UNSUPPORTED", versioned=False, traced=False, client="",
    client_space="", client_call="", client_hooks="", server="server",
    server_space="flyt::server::admin", server_request="server/admin/request.h",
    server_hooks="src/server/admin/hooks", handlers="server/admin_handlers", table="",
    table_name="", page="", exports=False)

# Those that share the numbers of CUDA's commands.
OTHERS = (NVML, ADMIN)
