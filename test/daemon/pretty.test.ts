import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { logInto, prettyTo } from '../../daemon/log.ts'
import { hasNoControls } from '../../src/core/terminal.ts'

function terminal() {
  let text = ''
  const screen = new Writable({
    write(chunk, _, done) {
      text += chunk
      done()
    },
  })
  return { log: logInto(prettyTo(screen, true), 'info'), shown: () => text }
}

it('a log on a terminal has a line for each request', () => {
  const { log, shown } = terminal()
  log.info({ requestId: 'a', method: 'GET', route: 'orgs.list', status: 200, ms: 1.2 }, 'request')
  expect(shown()).toMatch(/^[^\n]*request[^\n]*orgs\.list[^\n]*\n$/)
})

it('a log on a terminal has no control characters except its colors', () => {
  const { log, shown } = terminal()
  log.info(
    { 'k\u001b[45m': 'v\u009b', error: { message: 'm\u202e\u001b]0;t\u0007' } },
    'said \u001b[45m\u2028',
  )
  expect(shown()).toContain('said \\u001b[45m\\u2028')
  expect(shown()).toContain('\u001b[')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches them
  const colors = /\u001b\[(?:0|1|3\d|9\d)m/g
  expect(hasNoControls(shown().replace(colors, ''))).toBe(true)
  expect(shown()).not.toContain('\u001b[45m\u2028')
})
