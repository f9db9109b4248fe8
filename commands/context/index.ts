export { default } from './ls.ts'
