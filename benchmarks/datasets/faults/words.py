"""Lists of words that the detectors of faults go by."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


#: Words of any sentence.
STOP = words(
    """
    a an the this that these those it its is are was be been being as at by for from in into of on onto or and not
    no to with without over under up out then than so such if else when while where which who whose what how all
    any each both one two some more most other same own only just also here there again i you we they he she do
    does did done has have had can could will would shall should may might must per via using use uses used
    """
)
#: Words that relate things to one another.
JOINING = words(
    """
    of with when or and from in by for than where whose that as into per no not after until without
    """
)
#: Words that say what sort of thing stands somewhere, and nothing of this one.
SORTS = words(
    """
    function method class code program script query statement snippet expression block line lines cell call calls
    called define defines defined definition return returns returned returning take takes given give gives value
    values parameter parameters argument arguments variable variables name names named type object element item
    build builds comprehension loop loops iterate iterates itself recursive recursively python javascript sql
    select table tables column columns row rows clause clauses operation array data frame dataframe list dict
    dictionary handle handles raise raises error exception result results output input write implement implements
    implementation following example generate generates figure show shows display displays plot run runs running
    execute executes print prints simple basic compute computes calculate calculates perform performs create
    creates methods module nothing anything import imports set sets get gets make makes new combine combines
    promise promises clean cleans finally task step section part next previous above below first second third now
    let see wrong right because with update insert alter where group order limit join case having distinct union
    inner left outer exists window async await asynchronous
    """
)
#: Words that fit any task.
OF_ANY_TASK = SORTS | words(
    """
    please want need helper chapter notebook exercise answer solution question problem solve test tests pass
    passes assertion assertions cells it's following listing fig save saves saved appendix page
    """
)
#: Words by which code is put forward to be mended or explained.
ASKING = words(
    """
    fix repair correct mend debug explain why how this these that the following given below above here is are was
    be python javascript typescript sql bash shell code program script function query snippet fails fail failed
    failing failure error errors wrong bug write please make work works working so it its what when does do did
    doing run runs running ran raises raise to of in a an and or with for from on at by not no i you me my we our
    your can could should would will has have had return answer answers session far tests test expected output
    prints print cell which line lines goes go give gives need needs want wants out up problem issue step first
    then there
    """
)
#: Names that a JavaScript program finds defined, in Node or a browser.
JAVASCRIPT = words(
    """
    AbortController AbortSignal AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Blob
    Boolean BroadcastChannel Buffer Crypto CryptoKey CustomEvent DataView Date Error EvalError Event EventTarget
    FinalizationRegistry Float32Array Float64Array FormData Function Headers Infinity Int16Array Int32Array
    Int8Array Intl Iterator JSON Map Math MessageChannel MessagePort NaN Navigator Number Object Performance
    Promise Proxy RangeError ReadableStream ReferenceError Reflect RegExp Request Response Set SharedArrayBuffer
    String Symbol SyntaxError TextDecoder TextEncoder TransformStream TypeError URIError URL URLSearchParams
    Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet WebAssembly WebSocket
    WritableStream arguments atob btoa clearImmediate clearInterval clearTimeout console crypto decodeURI
    decodeURIComponent document encodeURI encodeURIComponent escape eval exports fetch global globalThis isFinite
    isNaN localStorage module navigator parseFloat parseInt performance process queueMicrotask require self
    sessionStorage setImmediate setInterval setTimeout structuredClone undefined unescape window location history
    alert XMLHttpRequest HTMLElement Element Node NodeList MutationObserver IntersectionObserver ResizeObserver
    File FileReader Worker Image Audio requestAnimationFrame cancelAnimationFrame __dirname __filename async of
    get set static super this new target React jQuery $
    """
)
