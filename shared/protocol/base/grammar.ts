/**
 * Every regular expression of the wire grammar, in one place.
 *
 * Why here: a token rule that is spelled twice drifts. Nothing else in the project writes a
 * pattern for a wire token; it imports one of these.
 *
 * Invariants: patterns are anchored, linear (no nested quantifiers) and carry their own bound.
 */

/** A principal token (§2): owner or actor. Refused, never sanitised; `-` is the form separator. */
export const PRINCIPAL_TOKEN = /^[A-Za-z0-9_]{1,64}$/;

/** A well-formed owner token (§2): the derived form of an authenticated space, or `local`. */
export const OWNER_TOKEN = /^(?:local|u_[a-z2-7]{26})$/;

/** A derived owner token only; `local` belongs to open spaces (§2). */
export const DERIVED_OWNER_TOKEN = /^u_[a-z2-7]{26}$/;

/** The actor of a chat session (§10): drawn by the auth service, never chosen. */
export const CHAT_ACTOR = /^chat_[a-z2-7]{26}$/;

/** What keeps a chat session (§10): a secret of at least 256 random bits, and its SHA-256 in hex. */
export const HOLDER_SECRET = /^[A-Za-z0-9_-]{43,128}$/;
export const HOLDER_HASH = /^[0-9a-f]{64}$/;

/** A label that `--owner` takes and hashes into an owner token (decision H48). */
export const OWNER_LABEL = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/;

/** A role (§3): an address, so refused and never sanitised. The bound of 64 is ours. */
export const ROLE_TOKEN = /^[A-Za-z0-9_-]{1,64}$/;

/** A lifecycle UID, and an instance id: one grammar for both (§13.1, §13.2). */
export const LIFECYCLE_UID = /^[a-z0-9]{26,32}$/;

/** The nonce of an endpoint request and of a liveness probe (§13.2): at least 128 random bits. */
export const REQUEST_NONCE = /^[A-Za-z0-9_-]{22,64}$/;

/** The nonce inside `connId` = `<lifecycleUid>_<nonce>` (decision H61). */
export const INBOX_NONCE = /^[A-Za-z0-9]{22,64}$/;

/** A whole connection id (decision H61). */
export const CONN_ID = /^[a-z0-9]{26,32}_[A-Za-z0-9]{22,64}$/;

/** An endpoint command, and a pool name (§13.2). */
export const COMMAND_TOKEN = /^[a-z0-9-]{1,32}$/;

/** One label of an endpoint name (§13.2). */
export const ENDPOINT_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** What an issued caller carries between its UID and the nonce on the versioned rail (§13.2, §13.15). */
export const GENERATION = /^[0-9a-f]{32}$/;

/** A whole number as one token (an epoch, a stream sequence): one spelling each, so no leading zero. */
export const WHOLE_NUMBER = /^(?:0|[1-9][0-9]{0,15})$/;

/** An error code on the wire (§13.3): one token of at most 64 bytes, of the catalogue or reverse-DNS. */
export const ERROR_CODE = /^[A-Za-z0-9.-]{1,64}$/;

/** Request ids, goal ids, timer ids, session ids (§13.2). */
export const ID_TOKEN = /^[A-Za-z0-9_-]{1,64}$/;

/** A space name on the wire (§3); the bound of 32 keeps stream and consumer names lawful. */
export const SPACE_TOKEN = /^[A-Za-z0-9_-]{1,32}$/;

/** A concrete channel segment on the wire (§3). */
export const CHANNEL_SEGMENT = /^[A-Za-z0-9_-]+$/;

/** `ChannelConfig.replayWindow` (§7). */
export const REPLAY_WINDOW = /^(\d{1,9})([smhd])$/;

/** A digest as every shape writes it (§5, supplement A). */
export const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** A reverse-DNS name of an extension (§11): two labels or more. */
export const REVERSE_DNS = /^[a-z][a-z0-9-]{0,62}(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?){1,8}$/;

/** What keeps a display name from being one line: control characters and line separators (§6, §8.1). */
export const NOT_ONE_LINE = /[\p{Cc}\u2028\u2029]/u;

/** Characters that sanitising replaces by `_` (§3). */
export const UNSAFE_CHARACTER = /[^A-Za-z0-9_-]/g;

/** A public user nkey: the transport credential, never a principal (§2). */
export const USER_NKEY = /^U[A-Z2-7]{55}$/;

/** The id of a root credential that a bearer names (§10): no key of the transport. */
export const ROOT_CREDENTIAL_ID = /^r_[a-z2-7]{26}$/;

/** Public nkeys of an operator, of an account, of a server, and of a curve (an `xkey`). */
export const OPERATOR_NKEY = /^O[A-Z2-7]{55}$/;
export const ACCOUNT_NKEY = /^A[A-Z2-7]{55}$/;
export const SERVER_NKEY = /^N[A-Z2-7]{55}$/;
export const CURVE_NKEY = /^X[A-Z2-7]{55}$/;

export const MAX_CHANNEL_LENGTH = 4096;
export const MAX_NAME_LENGTH = 128;
export const MAX_SUBJECT_BYTES = 1024;
