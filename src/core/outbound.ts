/** Why a request to an address that somebody else has given got no reply. */
export type FailureKind = 'blocked' | 'dns' | 'refused' | 'tls' | 'timeout' | 'broken'

/** The message says what happened, the hint what to look at. */
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
  blocked: 'it leads to an address that is not public: OUTBOUND_ALLOW_CIDRS opens private ranges',
  dns: 'the name has no address: is it spelled right, and does its zone still exist?',
  refused: 'nothing listens there: is the receiver running, and is the port right?',
  tls: 'the certificate was not accepted: has it expired, and does it name this host?',
  timeout: 'the receiver took too long: answer first and do the work afterwards',
  broken: 'the connection ended before there was a whole reply: look into the log of the receiver',
}

export type OutboundRequest = {
  method: 'GET' | 'POST'
  url: string
  headers: Record<string, string>
  body?: string | Buffer
  /** From the name being looked up to the last byte of the reply that is read. */
  milliseconds: number
  /** Bytes of the reply that are read; 64 KiB unless told. */
  mostBody?: number
}

export type OutboundReply = {
  status: number
  headers: Record<string, string>
  /** As much of it as is read: bytes that come behind are not waited for. */
  body: Buffer
  isWhole: boolean
  milliseconds: number
}

/** Where the host of an address leads at this moment. */
export type ResolvedHost =
  | { leads: 'out' }
  /** The address is itself one that is not public. */
  | { leads: 'inside' }
  /** The name has these that are not public. */
  | { leads: 'inside by name'; addresses: readonly string[] }
  | { leads: 'nowhere' }

/** Requests to addresses that somebody else has given. */
export type Outbound = {
  /** Follows no redirect, and knows no proxy. @throws OutboundFailure */
  send(request: OutboundRequest): Promise<OutboundReply>
  whereabouts(url: URL): Promise<ResolvedHost>
  close(): Promise<void>
}
