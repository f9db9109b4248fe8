/** Why a request to an address given by somebody else got no reply. */
export type FailureKind = 'blocked' | 'dns' | 'refused' | 'tls' | 'timeout' | 'broken'

/** The message says what happened, the hint what to check. */
export class OutboundFailure extends Error {
  override name = 'OutboundFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, message: string, cause?: unknown) {
    super(message, { cause })
    this.kind = kind
  }

  get hint(): string {
    return failureHints[this.kind]
  }
}

export const failureHints: Record<FailureKind, string> = {
  blocked: 'it resolves to an address that is not public: OUTBOUND_ALLOW_CIDRS opens private ranges',
  dns: 'the name has no address: is it spelled right, and does its zone still exist?',
  refused: 'nothing listens there: is the receiver running, and is the port right?',
  tls: 'the certificate was not accepted: has it expired, and does it name this host?',
  timeout: 'the receiver took too long: reply first and do the work afterwards',
  broken: 'the connection closed before the reply was complete: check the log of the receiver',
}

export type OutboundRequest = {
  method: 'GET' | 'POST'
  url: string
  headers: Record<string, string>
  body?: string | Buffer
  /** Time limit from the DNS lookup to the last byte read of the reply. */
  milliseconds: number
  /** Most bytes read of the reply; 64 KiB by default. */
  maxBody?: number
}

export type OutboundReply = {
  status: number
  headers: Record<string, string>
  /** The bytes read, up to `maxBody`; later bytes are not waited for. */
  body: Buffer
  isWhole: boolean
  milliseconds: number
}

/** Result of resolving the host of an address now. */
export type ResolvedHost =
  | { network: 'public' }
  /** The address itself is a literal that is not public. */
  | { network: 'private' }
  /** The name resolves to these addresses that are not public. */
  | { network: 'private by name'; addresses: readonly string[] }
  | { network: 'unresolved' }

/** Client for requests to addresses given by somebody else. */
export type Outbound = {
  /** Follows no redirect and uses no proxy. @throws OutboundFailure */
  send(request: OutboundRequest): Promise<OutboundReply>
  locateHost(url: URL): Promise<ResolvedHost>
  close(): Promise<void>
}

/** Whether a URL leads to another scheme, host or port: secrets for the one before are not for it. */
export function leadsElsewhere(url: string, before: string): boolean {
  const origin = URL.parse(url)?.origin
  return origin === undefined || origin !== URL.parse(before)?.origin
}
