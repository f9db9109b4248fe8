import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { eventTypes } from '../../core/event-types.ts'
import { didYouMean } from '../../core/suggest.ts'
import { readBytes } from '../ask.ts'
import { CliError, exitCodes, usageError } from '../exit-codes.ts'
import { type Output, printNote } from '../print.ts'
import { flushNotes } from '../stderr-notes.ts'
import { escapeToOneLine } from '../table.ts'
import { deliveryPrinter } from './delivery-printer.ts'
import { createForwarder, errorReply, parseTarget, type ReceiverReply } from './forwarder.ts'
import { type ReceiverOptions, receiver } from './receiver.ts'
import { readSigningSecret } from './signature-check.ts'

export type ReceiverFlags = {
  tolerance: number
  secret?: string | undefined
  'forward-to'?: string | undefined
  event?: string | undefined
}

export type ListenFlags = ReceiverFlags & {
  host: string
  port: number
  cert?: string | undefined
  key?: string | undefined
}

type Pair = { cert: Buffer; key: Buffer }
type Receive = (request: IncomingMessage) => Promise<ReceiverReply>

/** Receives deliveries until Ctrl-C. */
export async function listen(output: Output, flags: ListenFlags): Promise<void> {
  const pair = certificate(flags)
  const options = await receiverOptions(output, flags, flags.port)
  const { target, secret } = options
  const server = serverFor(pair, receiver(options))
  const broken = new Promise<never>((_, reject) => server.on('error', (error) => reject(error)))
  const address = await Promise.race([listening(server, flags, pair), broken]).catch((error) => {
    throw cannotListen(error as NodeJS.ErrnoException, flags)
  })
  greet(address, target, secret !== undefined, pair !== undefined)
  flushNotes()
  await broken
}

/** `port` is the one of this command, if it listens at one. */
export async function receiverOptions(
  output: Output,
  flags: ReceiverFlags,
  port?: number,
): Promise<ReceiverOptions & { target: URL | undefined }> {
  const print = await deliveryPrinter(output)
  const wanted = flags.event === undefined ? undefined : eventsNamed(flags.event)
  const to = flags['forward-to']
  const target = to === undefined ? undefined : parseTarget(to, port)
  const secret = flags.secret === undefined ? undefined : await readSigningSecret(flags.secret)
  const { tolerance } = flags
  return { secret, tolerance, wanted, target, forward: target && createForwarder(target), print }
}

function certificate({ cert, key }: ListenFlags): Pair | undefined {
  if (cert === undefined && key === undefined) return undefined
  if (cert === undefined || key === undefined) {
    throw usageError('--cert and --key go together', 'give the PEM file of the other as well')
  }
  return { cert: readBytes(cert, '--cert'), key: readBytes(key, '--key') }
}

function eventsNamed(text: string): Set<string> {
  const names = text.split(',').flatMap((name) => name.trim() || [])
  const known: readonly string[] = eventTypes
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) {
    throw usageError(
      `There is no event type "${unknown}"`,
      didYouMean(unknown, [...known]) ?? `event types: ${known.join(', ')}`,
    )
  }
  if (names.length === 0)
    throw usageError('--event names no event type', 'such as device.online,device.offline')
  return new Set(names)
}

/** Most concurrent deliveries: bounds their memory. */
const maxConnections = 64

function serverFor(pair: Pair | undefined, receive: Receive): Server {
  const handle = async (request: IncomingMessage, reply: ServerResponse) => {
    request.on('error', () => {})
    reply.on('error', () => {})
    try {
      send(reply, await receive(request))
    } catch (error) {
      // A request that was cut off is not a delivery.
      if (!request.complete) return
      printNote(`A delivery could not be answered: ${escapeToOneLine((error as Error).message)}`)
      if (!reply.headersSent) send(reply, errorReply(500, 'The receiver failed'))
    }
  }
  const limits = { requestTimeout: 30_000 }
  const server = pair
    ? secureServer({ ...limits, ...pair }, handle)
    : process.getBuiltinModule('node:http').createServer(limits, handle)
  server.maxConnections = maxConnections
  return server
}

function send(reply: ServerResponse, { status, headers, body }: ReceiverReply): void {
  reply.statusCode = status
  reply.setHeaders(new Map(Object.entries(headers)))
  reply.end(body)
}

function secureServer(
  options: Pair & { requestTimeout: number },
  handle: Parameters<Server['on']>[1],
): Server {
  try {
    return process
      .getBuiltinModule('node:https')
      .createServer(options, handle)
      .on('tlsClientError', ({ message }) =>
        printNote(`A connection ended before a delivery: ${escapeToOneLine(message)}`),
      )
  } catch (error) {
    throw usageError(
      `--cert and --key cannot be used: ${(error as Error).message}`,
      'both are PEM, and the key is that of the certificate, without a passphrase',
    )
  }
}

/** The address it listens at. */
function listening(server: Server, { host, port }: ListenFlags, pair: Pair | undefined): Promise<string> {
  return new Promise((resolve) => {
    server.listen(port, host, () => {
      const at = server.address() as AddressInfo
      const name = at.family === 'IPv6' ? `[${at.address}]` : at.address
      resolve(`${pair ? 'https' : 'http'}://${name}:${at.port}`)
    })
  })
}

function cannotListen(error: NodeJS.ErrnoException, { host, port }: ListenFlags): CliError {
  if (error.code === 'EADDRINUSE') {
    return new CliError(`${host}:${port} is in use`, {
      exit: exitCodes.failure,
      code: 'port_in_use',
      hint: '--port 0 picks a free one',
      cause: error,
    })
  }
  if (error.code === 'EACCES') {
    return usageError(`Not allowed to listen at port ${port}`, 'ports below 1024 are reserved: --port 4400')
  }
  return usageError(
    `Cannot listen at ${host}: ${error.code ?? error.message}`,
    '--host takes an address of this machine',
  )
}

function greet(address: string, target: URL | undefined, isChecked: boolean, isSecure: boolean): void {
  const forwarding = target ? `, forwarding to ${target.origin}${target.pathname}` : ''
  printNote(`Listening at ${address}${forwarding}; Ctrl-C ends`)
  if (!isChecked) {
    printNote(
      'Warning: without --secret no signature is checked: anybody who reaches this address can forge deliveries',
    )
  }
  printNote(
    isSecure
      ? 'A service reaches private addresses only with OUTBOUND_ALLOW_CIDRS, and trusts a private certificate only with OUTBOUND_CA_FILE'
      : 'Webhooks are sent over HTTPS alone: give --cert and --key, or put a TLS proxy or a tunnel in front; --webhook needs neither',
  )
}
