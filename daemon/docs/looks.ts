/** Shows the endpoints that have every word; `/` goes to the field. */
export const searchScript = `(() => {
const form = document.querySelector('form')
const field = form.querySelector('input')
const items = [...document.querySelectorAll('.endpoints li')].map((item) => [item, item.textContent.toLowerCase()])
const sections = [...document.querySelectorAll('main section')]
const status = document.querySelector('[role=status]')
const search = () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean)
  let found = 0
  for (const [item, text] of items) {
    item.hidden = !words.every((word) => text.includes(word))
    if (!item.hidden) found += 1
  }
  for (const section of sections) section.hidden = !section.querySelector('li:not([hidden])')
  status.textContent = words.length === 0 ? '' : found === 1 ? '1 endpoint' : found + ' endpoints'
}
form.hidden = false
form.addEventListener('submit', (event) => event.preventDefault())
field.addEventListener('input', search)
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target === field) return
  event.preventDefault()
  field.focus()
})
search()
})()`

export const style = `
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); --mark: light-dark(#0b57c2, #8ab8ff) }
* { box-sizing: border-box } [hidden] { display: none !important }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; display: grid; grid-template-columns: 15rem minmax(0, 60rem) }
a { color: var(--mark) } nav a, h2 a, .endpoints a { text-decoration: none } a:is(:hover, :focus-visible) { text-decoration: underline }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1rem } nav ul { list-style: none; margin: 0; padding: 0 }
nav a { display: block; padding: .25rem 0 } [aria-current] { font-weight: 700 }
main { min-width: 0; padding: 1rem 2rem 6rem; overflow-wrap: anywhere } h1 small, .faint { opacity: .7; font-weight: normal; font-size: .9em }
h2 { margin: 2.5rem 0 .25rem; font-size: 1.1rem } article { border-top: 1px solid var(--line); margin-top: 2.5rem } article h2 { margin-top: 1.5rem }
.endpoints { list-style: none; padding: 0 } .endpoints li { margin: .35rem 0 }
.method { display: inline-block; min-width: 4.2rem; font: 700 .85em ui-monospace, monospace }
code, pre { font: .92em/1.5 ui-monospace, monospace } figure { margin: .75rem 0 } figcaption, caption { text-align: left; font-weight: 600; margin-bottom: .25rem }
pre { margin: 0; padding: .75rem; overflow: auto; border: 1px solid var(--line); border-radius: 6px; overflow-wrap: normal }
label { font-weight: 600 } input { display: block; width: 100%; margin-top: .25rem; padding: .5rem .75rem; font: inherit; border: 1px solid var(--line); border-radius: 6px; background: transparent; color: inherit }
details { margin: .75rem 0 } summary { cursor: pointer; font-weight: 600 }
table { border-collapse: collapse; width: 100%; margin: .75rem 0 }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line) }
@media (max-width: 50rem) { body { display: block } nav { position: static; height: auto } nav ul { display: flex; flex-wrap: wrap; gap: 0 1rem } main { padding: 1rem } }
@media (max-width: 34rem) { thead { display: none } tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0 } td { display: block; border: 0; padding: 0 } }
`
