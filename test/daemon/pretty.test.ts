import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { logInto, prettyTo } from '../../daemon/log.ts'
import { hasNoControls } from '../../src/core/terminal.ts'

it('a log on a terminal has no control characters except its colors', () => {
  let text = ''
  const screen = new Writable({
    write(chunk, _, done) {
      text += chunk
      done()
    },
  })
  const log = logInto(prettyTo(screen, true), 'info')
  log.info(
    { 'k\u001b[45m': 'v\u009b', error: { message: 'm\u202e\u001b]0;t\u0007' } },
    'said \u001b[45m\u2028',
  )
  expect(text).toContain('said \\u001b[45m\\u2028')
  expect(text.trimEnd().split('\n')).toHaveLength(1)
  expect(text).toContain('\u001b[')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches them
  const colors = /\u001b\[(?:0|1|3\d|9\d)m/g
  expect(hasNoControls(text.replace(colors, ''))).toBe(true)
  expect(text).not.toContain('\u001b[45m\u2028')
})
