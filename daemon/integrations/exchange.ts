import type { Dispatcher } from 'undici'

type Controller = Dispatcher.DispatchController
type Headers = Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>[2]

/** The beginning of a reply. `isWhole`: it is complete. */
export type CollectedResponse = { status: number; headers: Headers; body: Buffer; isWhole: boolean }

/** Accepted interim replies (1xx). */
const maxInterim = 16

/**
 * Collects the reply of one request from undici. Short replies need no stream, and whatever ends
 * the exchange ends its connection with it.
 */
export class ResponseCollector implements Dispatcher.DispatchHandler {
  readonly #ended = Promise.withResolvers<CollectedResponse>()
  #controller: Controller | undefined
  #failure: Error | undefined
  #interim = 0
  #status = 0
  #headers: Headers = {}
  readonly #pieces: Buffer[] = []
  #left: number

  /** `max`: bytes of the body that are read. */
  constructor(max: number) {
    this.#left = max
    // The caller may not await it yet.
    this.#ended.promise.catch(() => {})
  }

  /** @throws the reason it was ended with, or the failure */
  get reply(): Promise<CollectedResponse> {
    return this.#ended.promise
  }

  /** Ends the exchange, also while it waits for a connection. */
  end(reason: Error): void {
    this.#failure = reason
    this.#ended.reject(reason)
    this.#controller?.abort(reason)
  }

  onRequestStart(controller: Controller): void {
    this.#controller = controller
    if (this.#failure) controller.abort(this.#failure)
  }

  onResponseStart(_: Controller, status: number, headers: Headers): void {
    if (status < 200) {
      this.#interim += 1
      if (this.#interim > maxInterim) this.end(new Error(`More than ${maxInterim} interim replies`))
      return
    }
    this.#status = status
    this.#headers = headers
  }

  onResponseData(_: Controller, piece: Buffer): void {
    if (this.#left < 0) return
    this.#pieces.push(piece.subarray(0, this.#left))
    this.#left -= piece.length
    if (this.#left >= 0) return
    this.#done()
    this.#controller?.abort(new Error('The rest of the reply is not read'))
  }

  onResponseEnd(): void {
    this.#done()
  }

  onResponseError(_: Controller, error: Error): void {
    this.#ended.reject(error)
  }

  #done(): void {
    const body = Buffer.concat(this.#pieces)
    this.#ended.resolve({ status: this.#status, headers: this.#headers, body, isWhole: this.#left >= 0 })
  }
}
