/** One thing that was done in a trial of a provider, and what came of it. */
export type Step = {
  step: string
  ok: boolean
  /** What was received, without what opens anything. */
  received: string | null
  /** Of the one that failed. */
  code: string | null
  hint: string | null
}

/** What happens while somebody signs in, for those who try a provider. */
export class Trace {
  readonly steps: Step[] = []

  passed(step: string, received?: string): void {
    this.steps.push({ step, ok: true, received: received ?? null, code: null, hint: null })
  }

  failed(step: string, { code, hint, received }: { code: string; hint: string; received?: string }): void {
    this.steps.push({ step, ok: false, received: received ?? null, code, hint })
  }

  /** Claims as an administrator may read them: what tokens and hashes say is left out. */
  redactClaims(claims: Record<string, unknown>): string {
    const shown = Object.entries(claims).filter(
      ([name]) => !/(^|_)(nonce|jti|sid|hash|token|secret)$/.test(name),
    )
    return JSON.stringify(Object.fromEntries(shown)).slice(0, 4000)
  }
}
