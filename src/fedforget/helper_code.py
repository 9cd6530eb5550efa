"""How helpers of kernels are compiled: to code that their callers take in, and no further.

By itself numba optimises every function and makes machine code of it, with everything that it
calls, and does so again for each of its callers.  A helper is called only from kernels, so here it
stays as it is lowered; a kernel that is compiled takes its helpers in, and all of it is optimised
once.  This uses numba's interface for passes, and what these passes hand on.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import IRLegalization, NativeLowering


class _HelperLibrary(JITCodeLibrary):
    """The code of a helper: linked into its callers, and optimised there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        # Not given to the engine, which would make machine code of it.
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _MakeLibrary(LoweringPass):
    """Before lowering: the code goes into a helper's library, and is not to be compiled."""

    _name = "fedforget_make_library"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = _HelperLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags = state.flags.copy()
        state.flags.no_compile = True
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _OfferToKernels(LoweringPass):
    """After lowering: other kernels find the code under a stand-in for the function."""

    _name = "fedforget_offer_to_kernels"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        lowered = state["cr"]
        # The dispatcher wants a function of C, which nobody calls: one that refuses, and is unique.
        stand_in = [].pop  # type: ignore[var-annotated]
        state.targetctx.insert_user_function(stand_in, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=stand_in)
        return True


class HelperCompiler(CompilerBase):
    """The usual passes, with the two above around the lowering."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state, "helper")
        manager.add_pass_after(_MakeLibrary, IRLegalization)
        manager.add_pass_after(_OfferToKernels, NativeLowering)
        manager.finalize()
        return [manager]
