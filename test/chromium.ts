import { existsSync } from 'node:fs'
import { type Browser, chromium } from 'playwright-core'

const path = process.env.CHROMIUM ?? '/usr/bin/chromium'

export const hasChromium = existsSync(path)
if (!hasChromium) console.warn(`skipped: pages in a real browser need chromium at ${path}`)

/** A real browser with a temporary profile. It sends requests only for its pages. */
export const startChromium = (): Promise<Browser> =>
  chromium.launch({
    executablePath: path,
    timeout: 20_000,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--ignore-certificate-errors',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
