//! The names of errors of CUDA's runtime, and their meaning for waiting threads.
//!
//! In: a number. Out: a row of a table. Whether a thread has an error its storage says.

/// The meaning of an error for a thread that waits for the result of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A kernel failed, or the GPU did: the context is lost, and every later call of CUDA fails with the same.
    Lost,
    /// The call was refused, and did nothing: a kernel that it launched never ran.
    Refused,
    /// Something else: programs that check for a GPU leave such errors behind, and work on.
    Other,
}

/// CUDA's name for an error, and its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CudaError {
    /// Its number.
    pub number: u32,
    name: &'static str,
    /// The meaning.
    pub meaning: Meaning,
}

impl CudaError {
    /// The name in CUDA's headers: `cudaErrorLaunchFailure`.
    pub(crate) fn name(&self) -> String {
        format!("cudaError{}", self.name)
    }
}

/// The error of this number; `None` for none that the runtime has.
pub(crate) fn of(number: u32) -> Option<CudaError> {
    ERRORS
        .binary_search_by_key(&number, |(known, _, _)| *known)
        .ok()
        .and_then(|at| ERRORS.get(at))
        .map(|(number, name, meaning)| CudaError { number: *number, name, meaning: *meaning })
}

use Meaning::{Lost, Other, Refused};

/// `enum cudaError` of driver_types.h, CUDA 13.0; numbers are the same since 10.1. The meanings come from the comments
/// there. For kernels that failed they were measured with driver 580 (all later calls return the same).
#[rustfmt::skip]
const ERRORS: &[(u32, &str, Meaning)] = &[
    (1, "InvalidValue", Refused),
    (2, "MemoryAllocation", Refused),
    (3, "InitializationError", Other),
    (4, "CudartUnloading", Other),
    (5, "ProfilerDisabled", Other),
    (6, "ProfilerNotInitialized", Other),
    (7, "ProfilerAlreadyStarted", Other),
    (8, "ProfilerAlreadyStopped", Other),
    (9, "InvalidConfiguration", Refused),
    (12, "InvalidPitchValue", Other),
    (13, "InvalidSymbol", Other),
    (16, "InvalidHostPointer", Other),
    (17, "InvalidDevicePointer", Other),
    (18, "InvalidTexture", Other),
    (19, "InvalidTextureBinding", Other),
    (20, "InvalidChannelDescriptor", Other),
    (21, "InvalidMemcpyDirection", Other),
    (22, "AddressOfConstant", Other),
    (23, "TextureFetchFailed", Other),
    (24, "TextureNotBound", Other),
    (25, "SynchronizationError", Other),
    (26, "InvalidFilterSetting", Other),
    (27, "InvalidNormSetting", Other),
    (28, "MixedDeviceExecution", Other),
    (31, "NotYetImplemented", Other),
    (32, "MemoryValueTooLarge", Other),
    (34, "StubLibrary", Other),
    (35, "InsufficientDriver", Other),
    (36, "CallRequiresNewerDriver", Other),
    (37, "InvalidSurface", Other),
    (43, "DuplicateVariableName", Other),
    (44, "DuplicateTextureName", Other),
    (45, "DuplicateSurfaceName", Other),
    (46, "DevicesUnavailable", Other),
    (49, "IncompatibleDriverContext", Other),
    (52, "MissingConfiguration", Other),
    (53, "PriorLaunchFailure", Refused),
    (65, "LaunchMaxDepthExceeded", Other),
    (66, "LaunchFileScopedTex", Other),
    (67, "LaunchFileScopedSurf", Other),
    (68, "SyncDepthExceeded", Other),
    (69, "LaunchPendingCountExceeded", Other),
    (98, "InvalidDeviceFunction", Refused),
    (100, "NoDevice", Other),
    (101, "InvalidDevice", Other),
    (102, "DeviceNotLicensed", Other),
    (103, "SoftwareValidityNotEstablished", Other),
    (127, "StartupFailure", Other),
    (200, "InvalidKernelImage", Refused),
    (201, "DeviceUninitialized", Other),
    (205, "MapBufferObjectFailed", Other),
    (206, "UnmapBufferObjectFailed", Other),
    (207, "ArrayIsMapped", Other),
    (208, "AlreadyMapped", Other),
    (209, "NoKernelImageForDevice", Refused),
    (210, "AlreadyAcquired", Other),
    (211, "NotMapped", Other),
    (212, "NotMappedAsArray", Other),
    (213, "NotMappedAsPointer", Other),
    (214, "ECCUncorrectable", Lost),
    (215, "UnsupportedLimit", Other),
    (216, "DeviceAlreadyInUse", Other),
    (217, "PeerAccessUnsupported", Other),
    (218, "InvalidPtx", Refused),
    (219, "InvalidGraphicsContext", Other),
    (220, "NvlinkUncorrectable", Lost),
    (221, "JitCompilerNotFound", Other),
    (222, "UnsupportedPtxVersion", Refused),
    (223, "JitCompilationDisabled", Other),
    (224, "UnsupportedExecAffinity", Other),
    (225, "UnsupportedDevSideSync", Other),
    (226, "Contained", Lost),
    (300, "InvalidSource", Other),
    (301, "FileNotFound", Other),
    (302, "SharedObjectSymbolNotFound", Other),
    (303, "SharedObjectInitFailed", Other),
    (304, "OperatingSystem", Other),
    (400, "InvalidResourceHandle", Refused),
    (401, "IllegalState", Other),
    (402, "LossyQuery", Other),
    (500, "SymbolNotFound", Other),
    (600, "NotReady", Other),
    (700, "IllegalAddress", Lost),
    (701, "LaunchOutOfResources", Refused),
    (702, "LaunchTimeout", Lost),
    (703, "LaunchIncompatibleTexturing", Other),
    (704, "PeerAccessAlreadyEnabled", Other),
    (705, "PeerAccessNotEnabled", Other),
    (708, "SetOnActiveProcess", Other),
    (709, "ContextIsDestroyed", Lost),
    (710, "Assert", Lost),
    (711, "TooManyPeers", Other),
    (712, "HostMemoryAlreadyRegistered", Other),
    (713, "HostMemoryNotRegistered", Other),
    (714, "HardwareStackError", Lost),
    (715, "IllegalInstruction", Lost),
    (716, "MisalignedAddress", Lost),
    (717, "InvalidAddressSpace", Lost),
    (718, "InvalidPc", Lost),
    (719, "LaunchFailure", Lost),
    (720, "CooperativeLaunchTooLarge", Refused),
    (721, "TensorMemoryLeak", Lost),
    (800, "NotPermitted", Other),
    (801, "NotSupported", Refused),
    (802, "SystemNotReady", Other),
    (803, "SystemDriverMismatch", Other),
    (804, "CompatNotSupportedOnDevice", Other),
    (805, "MpsConnectionFailed", Other),
    (806, "MpsRpcFailure", Other),
    (807, "MpsServerNotReady", Other),
    (808, "MpsMaxClientsReached", Other),
    (809, "MpsMaxConnectionsReached", Other),
    (810, "MpsClientTerminated", Other),
    (811, "CdpNotSupported", Other),
    (812, "CdpVersionMismatch", Other),
    (900, "StreamCaptureUnsupported", Other),
    (901, "StreamCaptureInvalidated", Other),
    (902, "StreamCaptureMerge", Other),
    (903, "StreamCaptureUnmatched", Other),
    (904, "StreamCaptureUnjoined", Other),
    (905, "StreamCaptureIsolation", Other),
    (906, "StreamCaptureImplicit", Other),
    (907, "CapturedEvent", Other),
    (908, "StreamCaptureWrongThread", Other),
    (909, "Timeout", Other),
    (910, "GraphExecUpdateFailure", Other),
    (911, "ExternalDevice", Other),
    (912, "InvalidClusterSize", Refused),
    (913, "FunctionNotLoaded", Other),
    (914, "InvalidResourceType", Other),
    (915, "InvalidResourceConfiguration", Other),
    (999, "Unknown", Other),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_names_and_meanings() {
        assert!(ERRORS.windows(2).all(|two| two[0].0 < two[1].0), "the table is searched");
        let told = |number| of(number).map(|error| (error.name(), error.meaning));
        assert_eq!(told(719), Some(("cudaErrorLaunchFailure".into(), Lost)));
        assert_eq!(told(9), Some(("cudaErrorInvalidConfiguration".into(), Refused)));
        assert_eq!(told(600), Some(("cudaErrorNotReady".into(), Other)), "whoever asked got an answer");
        assert_eq!((told(0), told(u32::MAX)), (None, None));
    }
}
